package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/convert"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Sections returns the tensors of a finished run's PromptsFile, some at a time: the server's, then those of each
// client.
func Sections(experiment *spec.Experiment, global *method.Global, store *Store,
	participants []message.Participant) []func() (
	tensor.Map, error) {
	out := []func() (tensor.Map, error){func() (tensor.Map, error) {
		return tensor.Map{}.Put("shared", global.Shared).Put(DownFolder,
			ClientBroadcasts(experiment, global, participants)), nil
	}}
	for _, id := range store.Clients() {
		out = append(out, func() (tensor.Map, error) {
			st, err := store.Get(id)
			at := "client/" + strconv.Itoa(id)
			return tensor.Map{}.Put(at+"/private", st.Private).Put(at+"/own", st.Own), err
		})
	}

	for _, client := range experiment.Clients {
		if !spec.UsesMemory(experiment.Method, experiment.Task(client)) {
			continue
		}
		out = append(out, func() (tensor.Map, error) {
			m, err := spec.Memory(client, experiment.Plan.Seed)
			return tensor.Map{}.Put(memoryFolder+"/"+strconv.Itoa(client.ID), m), err
		})
	}

	return out
}

// LoadSections returns the tensors of all parts in one map, as a copy. The first error of a part ends it.
func LoadSections(parts []func() (tensor.Map, error)) (tensor.Map, error) {
	out := tensor.Map{}
	for _, load := range parts {
		m, err := load()
		if err != nil {
			return nil, err
		}
		maps.Copy(out, m.Clone())
	}

	return out, nil
}

// WriteSections writes tensors as safetensors.WriteFile does, with those of one part in memory at a time. It adds their
// checksums to the metadata.
func WriteSections(path string, parts []func() (tensor.Map, error), meta map[string]string) error {
	type entry struct {
		safetensors.Entry
		part int
	}
	var entries []entry
	sums := map[string]string{}

	for i, load := range parts {
		m, err := load()
		if err != nil {
			return err
		}
		maps.Copy(sums, tensorSums(m))
		for _, name := range m.Names() {
			e := entry{safetensors.Entry{Name: name, DType: "F32", Shape: slices.Clone(m[name].Shape)}, i}
			if m[name].IsInt() {
				e.DType = "I64"
			}
			entries = append(entries, e)
		}
	}

	slices.SortFunc(entries, func(a, b entry) int { // I64 before F32, so that elements lie aligned
		return cmp.Or(-strings.Compare(a.DType, b.DType), strings.Compare(a.Name, b.Name))
	})
	list := convert.Slice(entries, func(e entry) safetensors.Entry { return e.Entry })
	return atomicfile.Write(path, func(w io.Writer) error {
		out, err := safetensors.NewWriter(w, list, withSums(meta, sums), 8)
		if err != nil {
			return err
		}

		var now tensor.Map
		at := -1
		for _, e := range entries {
			if e.part != at {
				if now, err = parts[e.part](); err != nil {
					return err
				}
				at = e.part
			}
			if err := out.Put(e.Name, now[e.Name]); err != nil {
				return err
			}
		}

		return out.Close()
	})
}

// tensorSums returns the checksum of each tensor, so that a reader of some can check them without the others.
func tensorSums(m tensor.Map) map[string]string {
	out := map[string]string{}
	for name, values := range m {
		out[name] = checksum(tensor.Map{name: values}, nil)
	}
	return out
}

// withSums returns metadata with the checksums of tensors, as JSON.
func withSums(meta, sums map[string]string) map[string]string {
	text, _ := json.Marshal(sums) // texts cannot fail
	out := map[string]string{checksumKey: string(text)}
	maps.Copy(out, meta)
	return out
}

// ReadPrompts reads PromptsFile of a run folder: the server's tensors, the tensors of some clients, and the metadata.
// It refuses tensors that were changed after they were written, unless the file has no checksums, as older ones.
func ReadPrompts(dir string, clients ...int) (tensor.Map, map[string]string, error) {
	path := filepath.Join(dir, record.PromptsFile)
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()

	tensors := tensor.Map{}
	for _, name := range file.Names() {
		folder, rest, _ := strings.Cut(name, "/")
		id, _, _ := strings.Cut(rest, "/")
		if k, err := strconv.Atoi(id); folder != "shared" && (err != nil || !slices.Contains(clients, k)) {
			continue
		}
		if tensors[name], err = file.Tensor(name); err != nil {
			return nil, nil, err
		}
	}

	meta, sums := file.Metadata(), map[string]string{}
	text, there := meta[checksumKey]
	_ = json.Unmarshal([]byte(text), &sums) // a damaged list lacks the tensor
	for name, sum := range tensorSums(tensors) {
		if there && sums[name] != sum {
			return nil, nil, fmt.Errorf("%s is damaged: %s does not match its checksum; restore a copy, or write it "+
				"again with run --resume", path, name)
		}
	}

	return tensors, meta, nil
}

// Metadata returns the metadata of PromptsFile: the backbone of each client with the digest of its files, and the
// classes that each client that is here has examples of. Only clients on other machines know theirs.
func Metadata(experiment *spec.Experiment, participants []message.Participant, here []*spec.Client) (map[string]string,
	error) {
	owned := make([][]int64, len(participants))
	for _, client := range here {
		owned[client.ID] = client.Classes()
	}

	meta := map[string]string{}
	backbones, digests := make([]string, len(participants)), make([]string, len(participants))
	for i, m := range participants {
		backbones[i], digests[i] = m.Task.Backbone, m.Digest
	}

	for key, list := range map[string]any{MetaClasses: experiment.Classes, MetaBackbones: backbones,
		MetaDigests: digests, MetaOwned: owned} {
		b, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		meta[key] = string(b)
	}

	return meta, nil
}

// ClientBroadcasts returns the server's extras that each client's class scores read, as K/NAME.
func ClientBroadcasts(experiment *spec.Experiment, global *method.Global,
	participants []message.Participant) tensor.Map {
	out := tensor.Map{}
	for id, c := range participants {
		if !c.Joined || len(global.Broadcast)+len(global.PerClient[id]) == 0 {
			continue
		}
		for _, in := range method.Inputs(experiment.Method.Logits(method.ScopeOf(experiment.Method, c.Task))) {
			for _, from := range []tensor.Map{global.Broadcast, global.PerClient[id]} {
				if v := from[in.Name]; v != nil && in.Kind == method.BroadcastInput {
					out[strconv.Itoa(id)+"/"+in.Name] = v
				}
			}
		}
	}

	return out
}

// ClientMemory returns the examples that a finished run kept of a client, or nil.
func ClientMemory(prompts tensor.Map, client int) method.Data {
	m := prompts.WithoutPrefix(memoryFolder + "/" + strconv.Itoa(client))
	if m["image"] == nil || m["label"] == nil {
		return nil
	}
	return &spec.Features{Views: []spec.RowReader{spec.InMemory{Tensor: m["image"]}}, Class: m["label"].Ints}
}

// ClientParams returns, of the tensors of a run folder (PromptsFile), those that one client is tested with.
func ClientParams(prompts tensor.Map, client int) (shared tensor.Map, s message.ClientState) {
	mine := prompts.WithoutPrefix("client/" + strconv.Itoa(client))
	return prompts.WithoutPrefix("shared"), message.ClientState{Private: mine.WithoutPrefix("private"),
		Own: mine.WithoutPrefix("own")}
}

const (
	memoryFolder = "memory" // of a client's memory in PromptsFile: memory/K/image and memory/K/label
)

// DownFolder holds the server's extras that a client's class scores read, in PromptsFile: down/K/NAME.
const DownFolder = "down"

// Keys of the metadata of PromptsFile, each a JSON list of names.
const (
	MetaClasses   = "classes"
	MetaBackbones = "backbones" // of each client
	MetaDigests   = "digests"   // of the files of each client's backbone; empty where it is not known
	MetaOwned     = "owned"     // classes that each client has examples of
)

// WriteClientParams writes, in the form of PromptsFile, the parameters that one client is tested with: the shared
// parameters of its last instruction, its state, and the other inputs of its class scores. The file holds nothing of
// other clients but their number. It suffices to classify as this client and to export its classifier.
func WriteClientParams(experiment *spec.Experiment, path string, client *spec.Client, instruction message.Instruction,
	state message.ClientState) error {
	task := spec.TaskOf(client.Backbone, client.ID, instruction.Total, len(experiment.Classes))
	participants := make([]message.Participant, instruction.Total)
	if client.ID < 0 || client.ID >= len(participants) {
		return fmt.Errorf("client %d does not exist; there are %d clients", client.ID, instruction.Total)
	}

	participants[client.ID] = message.Participant{Joined: true, Task: task, Domain: client.Domain,
		Digest: experiment.Digests[task.Backbone]}
	id := strconv.Itoa(client.ID)
	global := &method.Global{Broadcast: instruction.Broadcast, PerClient: instruction.PerClient}
	tensors := tensor.Map{}.Put("shared", instruction.Shared).Put(DownFolder,
		ClientBroadcasts(experiment, global, participants)).
		Put("client/"+id+"/private", state.Private).Put("client/"+id+"/own", state.Own)
	if spec.UsesMemory(experiment.Method, task) {
		rows, err := spec.Memory(client, experiment.Plan.Seed)
		if err != nil {
			return err
		}
		tensors.Put(memoryFolder+"/"+id, rows)
	}

	meta, err := Metadata(experiment, participants, []*spec.Client{client})
	if err != nil {
		return err
	}

	return safetensors.WritePrivateFile(path, tensors, withSums(meta, tensorSums(tensors)))
}

// WriteState writes a client's state to a file, with a checksum.
func WriteState(path string, s message.ClientState) error {
	return WriteChecksummed(path, s.Tensors(), nil)
}

// ReadState reads a file of WriteState and refuses one that was changed since.
func ReadState(path string) (message.ClientState, error) {
	m, _, err := ReadChecksummed(path)
	if err != nil {
		return message.ClientState{}, err
	}
	return message.ParseClientState(m)
}
