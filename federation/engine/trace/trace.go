package trace

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"promptfed/federation/engine/spec"
	"promptfed/models/clip"
	"promptfed/runtime/atomicfile"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Tracer takes every number of a run that an outside program needs to recompute it. Put must copy what it keeps and be
// safe for concurrent use.
type Tracer interface {
	Put(name string, t *tensor.Tensor)
	Step(StepRecord)
	Round(RoundRecord)
}

// Recorder is a Tracer that keeps everything in memory, until it is written as a trace folder.
type Recorder struct {
	mu      sync.Mutex
	Tensors tensor.Map
	Steps   []StepRecord
	Rounds  []RoundRecord
}

// StepRecord describes one step in trace.json.
type StepRecord struct {
	Round  int     `json:"round"`
	Client int     `json:"client"`
	Step   int     `json:"step"`
	Epoch  int     `json:"epoch"` // the pass over the client's data, counted from 0
	LR     float64 `json:"lr"`
	// Rates are the learning rates of parameters that do not take LR.
	Rates map[string]float64 `json:"rates,omitempty"`
	// Frozen are the parameters that the step leaves unchanged: no gradient, no weight decay, no momentum.
	Frozen []string `json:"frozen,omitempty"`
}

// RoundRecord describes one round in trace.json.
type RoundRecord struct {
	Round int `json:"round"`
	// Merged are the clients whose uploads were merged, and Examples what each counts for.
	Merged   []int `json:"merged"`
	Examples []int `json:"examples"`
	// Staleness is, with FedBuff, how many steps of the server ago each of them started.
	Staleness []int `json:"staleness,omitempty"`
}

// NewRecorder returns a Recorder without content.
func NewRecorder() *Recorder { return &Recorder{Tensors: tensor.Map{}} }

// Put keeps a copy of a tensor. A later tensor of the same name replaces it.
func (r *Recorder) Put(name string, t *tensor.Tensor) {
	c := t.Clone()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Tensors[name] = c
}

func (r *Recorder) Step(s StepRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Steps = append(r.Steps, s)
}

func (r *Recorder) Round(o RoundRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Rounds = append(r.Rounds, o)
}

// Client writes under one prefix, or nothing when there is no Tracer.
type Client struct {
	tracer        Tracer
	round, client int
	prefix        string
}

// NewClient traces a client's part of a round.
func NewClient(t Tracer, round, client int) Client {
	return Client{t, round, client, fmt.Sprintf("r%d/c%d/", round, client)}
}

// Put records a tensor under the prefix; nil is left out.
func (tr Client) Put(name string, t *tensor.Tensor) {
	if tr.tracer != nil && t != nil {
		tr.tracer.Put(tr.prefix+name, t)
	}
}

// PutAll records the tensors of maps as under/NAME. Of equal names the last counts.
func (tr Client) PutAll(under string, maps ...tensor.Map) {
	for _, m := range maps {
		for k, t := range m {
			tr.Put(under+"/"+k, t)
		}
	}
}

// Enabled reports whether anything is recorded, so that callers can skip what only a trace needs.
func (tr Client) Enabled() bool { return tr.tracer != nil }

// Step is one step before its update.
type Step struct {
	StepRecord
	Batch, Draws tensor.Map
	Scalars      map[string]float64
	Loss         *tensor.Tensor
	Raw, Grads   tensor.Map // gradients of the loss, and what the optimizer gets in their place
}

// Step records a step. Of the raw gradients it records those in whose place the optimizer gets others, or none.
func (tr Client) Step(step Step) {
	if tr.tracer == nil {
		return
	}

	at := fmt.Sprintf("s%d", step.StepRecord.Step)
	tr.PutAll(at, step.Batch)
	tr.PutAll(at+"/draw", step.Draws)
	for name, v := range step.Scalars {
		tr.Put(at+"/scalar/"+name, tensor.Of([]float32{float32(v)}, 1))
	}

	tr.Put(at+"/loss", step.Loss)
	tr.PutAll(at+"/grad", step.Grads)
	for name, g := range step.Raw {
		if now := step.Grads[name]; now == nil || !slices.Equal(now.Data, g.Data) {
			tr.Put(at+"/grad_raw/"+name, g)
		}
	}

	step.Round, step.Client = tr.round, tr.client
	tr.tracer.Step(step.StepRecord)
}

// After records the parameters after the update of step n of the turn, as sN/after/NAME.
func (tr Client) After(n int, params tensor.Map) {
	if tr.tracer != nil {
		tr.PutAll(fmt.Sprintf("s%d/after", n), params)
	}
}

// TraceAll records tensors of the server as under/NAME, without the prefix of a client.
func TraceAll(t Tracer, under string, m tensor.Map) {
	for k, v := range m {
		t.Put(under+"/"+k, v)
	}
}

const (
	InfoFile    = "trace.json"        // Info
	TensorsFile = "trace.safetensors" // every tensor by its name
)

// Version is that of the trace folder, in trace.json.
const Version = 3

// Info is trace.json: what an outside program needs beside the tensors. Version, Steps and Rounds are filled in by
// Write.
type Info struct {
	Version    int      `json:"version"`
	Config     any      `json:"config"`  // resolved
	Classes    []string `json:"classes"` // names
	Tokens     [][]int  `json:"tokens"`  // ids of each class behind a prompt: name, full stop, EOT
	HandTokens [][]int  `json:"hand_tokens,omitempty"`
	NameTokens [][]int  `json:"name_tokens,omitempty"`
	// TemplateTokens are whole sequences by template, of those that the method reads beside data.template and bare
	// names.
	TemplateTokens map[string][][]int `json:"template_tokens,omitempty"`
	Layout         string             `json:"layout,omitempty"`  // how ids become sequences, in words
	Bundles        []Bundle           `json:"bundles,omitempty"` // the token ids above are those of the first
	Clients        []ClientInfo       `json:"clients"`
	Steps          []StepRecord       `json:"steps"`
	Rounds         []RoundRecord      `json:"rounds"`
	// Words are the embeddings [n,w] of what Bundle.Words names, by the number of the bundle and the text.
	Words tensor.Map `json:"-"`
}

// Bundle is a backbone of the run and how its tokenizer reads the classes.
type Bundle struct {
	Name           string             `json:"name"`
	Digest         string             `json:"digest"`
	Folder         string             `json:"folder"`
	LogitScale     float64            `json:"logit_scale"`          // what cosines are multiplied with
	LogitBias      float64            `json:"logit_bias,omitempty"` // what a sigmoid loss adds to that
	Sigmoid        bool               `json:"sigmoid,omitempty"`    // labels are fitted by sigmoids
	SOS            int                `json:"sos"`                  // -1: texts have no start token
	EOT            int                `json:"eot"`
	Context        int                `json:"context"`
	Text           clip.TextArch      `json:"text"` // its pad, pool and masks say how sequences are filled up and read
	Tokens         [][]int            `json:"tokens"`
	HandTokens     [][]int            `json:"hand_tokens"`
	NameTokens     [][]int            `json:"name_tokens"` // whole sequences of bare class names
	TemplateTokens map[string][][]int `json:"template_tokens,omitempty"`
	Words          map[string][]int   `json:"words,omitempty"` // ids of what parameters are added to, by text
}

// ClientInfo describes a client in trace.json.
type ClientInfo struct {
	Bundle     string      `json:"bundle"`
	Examples   int         `json:"examples"` // to train on
	Test       int         `json:"test"`     // to test on
	Domain     string      `json:"domain,omitempty"`
	Parameters []Parameter `json:"parameters"`
}

// Parameter describes a learnable tensor of a client in trace.json.
type Parameter struct {
	Name  string `json:"name"`
	Owner string `json:"owner"` // shared or private
	Shape []int  `json:"shape"`
	Words string `json:"words,omitempty"` // to whose embeddings it is added
}

// ClientInfos describes the clients of an experiment and their parameters, for Info.Clients.
func ClientInfos(experiment *spec.Experiment) []ClientInfo {
	out := make([]ClientInfo, len(experiment.Clients))
	for i, client := range experiment.Clients {
		out[i] = ClientInfo{Bundle: client.Backbone.Name(), Examples: client.Train.Len(), Test: client.Test.Len(),
			Domain: client.Domain}
		for _, p := range experiment.Method.Params(experiment.Task(client)) {
			out[i].Parameters = append(out[i].Parameters, Parameter{p.Name, p.Owner.String(), p.Shape, p.Words})
		}
	}

	return out
}

// Texts are the words that parameters of clients are added to, sorted.
func (i Info) Texts() (out []string) {
	for _, c := range i.Clients {
		for _, p := range c.Parameters {
			if p.Words != "" {
				out = append(out, p.Words)
			}
		}
	}

	slices.Sort(out)
	return slices.Compact(out)
}

// Write writes what was recorded, with info beside it, into the folder dir, which it makes where it is missing.
func (r *Recorder) Write(dir string, info Info) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	info.Version, info.Rounds = Version, r.Rounds
	info.Steps = slices.SortedFunc(slices.Values(r.Steps), func(a, b StepRecord) int {
		return cmp.Or(a.Round-b.Round, a.Client-b.Client, a.Step-b.Step)
	})
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("trace: %w", err)
	}

	all := maps.Clone(r.Tensors).Put("words", info.Words)
	if err := safetensors.WriteFile(filepath.Join(dir, TensorsFile), all, nil); err != nil {
		return fmt.Errorf("trace: %w", err)
	}

	return atomicfile.Write(filepath.Join(dir, InfoFile), atomicfile.JSON(info, " "))
}
