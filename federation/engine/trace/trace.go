package trace

import (
	"fmt"
	"slices"
	"sync"

	"promptfed/runtime/tensor"
)

// Tracer takes every number of a run that an outside program needs to recompute it. Put must copy what it keeps and be
// safe for concurrent use.
type Tracer interface {
	Put(name string, t *tensor.Tensor)
	Step(StepRecord)
	Round(RoundRecord)
}

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

func NewRecorder() *Recorder { return &Recorder{Tensors: tensor.Map{}} }

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
	t             Tracer
	round, client int
	prefix        string
}

// NewClient traces a client's part of a round.
func NewClient(t Tracer, round, client int) Client {
	return Client{t, round, client, fmt.Sprintf("r%d/c%d/", round, client)}
}

func (tr Client) Put(name string, t *tensor.Tensor) {
	if tr.t != nil && t != nil {
		tr.t.Put(tr.prefix+name, t)
	}
}

func (tr Client) PutAll(under string, maps ...tensor.Map) {
	for _, m := range maps {
		for k, t := range m {
			tr.Put(under+"/"+k, t)
		}
	}
}

func (tr Client) Enabled() bool { return tr.t != nil }

// Step is one step before its update.
type Step struct {
	StepRecord
	Batch, Draws tensor.Map
	Scalars      map[string]float64
	Loss         *tensor.Tensor
	Raw, Grads   tensor.Map // gradients of the loss, and what the optimizer gets in their place
}

// Step records a step. Of the raw gradients it records those in whose place the optimizer gets others, or none.
func (tr Client) Step(s Step) {
	if tr.t == nil {
		return
	}
	at := fmt.Sprintf("s%d", s.StepRecord.Step)
	tr.PutAll(at, s.Batch)
	tr.PutAll(at+"/draw", s.Draws)
	for name, v := range s.Scalars {
		tr.Put(at+"/scalar/"+name, tensor.Of([]float32{float32(v)}, 1))
	}
	tr.Put(at+"/loss", s.Loss)
	tr.PutAll(at+"/grad", s.Grads)
	for name, g := range s.Raw {
		if now := s.Grads[name]; now == nil || !slices.Equal(now.Data, g.Data) {
			tr.Put(at+"/grad_raw/"+name, g)
		}
	}
	s.Round, s.Client = tr.round, tr.client
	tr.t.Step(s.StepRecord)
}

func (tr Client) After(n int, params tensor.Map) {
	if tr.t != nil {
		tr.PutAll(fmt.Sprintf("s%d/after", n), params)
	}
}

func TraceAll(t Tracer, under string, m tensor.Map) {
	for k, v := range m {
		t.Put(under+"/"+k, v)
	}
}
