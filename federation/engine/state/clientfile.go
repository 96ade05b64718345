package state

import (
	"fmt"
	"strconv"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// WriteClientParams writes, in the form of PromptsFile, the parameters that one client is tested with: the shared
// parameters of its last instruction, its state, and the other inputs of its class scores. The file holds nothing of
// other clients but their number. It suffices to classify as this client and to export its classifier.
func WriteClientParams(e *spec.Experiment, path string, c *spec.Client, o message.Instruction,
	s message.ClientState) error {
	t := spec.TaskOf(c.Backbone, c.ID, o.Total, len(e.Classes))
	participants := make([]message.Participant, o.Total)
	if c.ID < 0 || c.ID >= len(participants) {
		return fmt.Errorf("client %d does not exist; there are %d clients", c.ID, o.Total)
	}
	participants[c.ID] = message.Participant{Joined: true, Task: t, Domain: c.Domain, Digest: e.Digests[t.Backbone]}
	id := strconv.Itoa(c.ID)
	g := &method.Global{Broadcast: o.Broadcast, PerClient: o.PerClient}
	m := tensor.Map{}.Put("shared", o.Shared).Put(DownFolder, ClientBroadcasts(e, g, participants)).
		Put("client/"+id+"/private", s.Private).Put("client/"+id+"/own", s.Own)
	if spec.UsesMemory(e.Method, t) {
		rows, err := spec.Memory(c, e.Plan.Seed)
		if err != nil {
			return err
		}
		m.Put(memoryFolder+"/"+id, tensor.Map{"image": rows["image"], "label": rows["label"]})
	}
	owned := make([][]int64, o.Total)
	owned[c.ID] = c.Classes()
	meta, err := metadata(e, participants, owned)
	if err != nil {
		return err
	}
	return safetensors.WritePrivateFile(path, m, meta)
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
