package trace

import (
	"fmt"
	"sync"

	"promptfed/runtime/tensor"
)

// Tracer takes every number of a run that an outside program needs to recompute it. Put must copy what it keeps and be
// safe for concurrent use.
type Tracer interface {
	Put(name string, t *tensor.Tensor)
	// Step records the learning rate of a step.
	Step(round, client, step int, lr float64)
}

// Recorder is a Tracer in memory.
type Recorder struct {
	mu      sync.Mutex
	Tensors tensor.Map
	Steps   []StepRecord
}

// StepRecord is what trace.json says of one step.
type StepRecord struct {
	Round  int     `json:"round"`
	Client int     `json:"client"`
	Step   int     `json:"step"`
	LR     float64 `json:"lr"`
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return &Recorder{Tensors: tensor.Map{}} }

func (r *Recorder) Put(name string, t *tensor.Tensor) {
	c := t.Clone()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Tensors[name] = c
}

func (r *Recorder) Step(round, client, step int, lr float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Steps = append(r.Steps, StepRecord{round, client, step, lr})
}

// Client writes under one prefix, or nothing when there is no Tracer.
type Client struct {
	t             Tracer
	round, client int
	prefix        string
}

// OfClient traces a client's part of a round.
func OfClient(t Tracer, round, client int) Client {
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

// Step records one step before its update: the batch, what was drawn, the loss and the gradients.
func (tr Client) Step(n int, batch, draws tensor.Map, loss *tensor.Tensor, grads tensor.Map, lr float64) {
	if tr.t == nil {
		return
	}
	at := fmt.Sprintf("s%d", n)
	tr.PutAll(at, batch)
	tr.PutAll(at+"/draw", draws)
	tr.Put(at+"/loss", loss)
	tr.PutAll(at+"/grad", grads)
	tr.t.Step(tr.round, tr.client, n, lr)
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
