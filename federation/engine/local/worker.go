// Package local is the side of one client: it compiles a method to graphs, trains its parameters on the client's data,
// computes statistics for the server, and evaluates.
package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/noise"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Worker does a client's part. It is the same code behind every Cohort and safe for concurrent use. NewWorker makes
// one.
type Worker struct {
	Method   method.Method
	Training spec.Training
	Seed     uint64
	Tracer   trace.Tracer  // nil for none
	Guard    message.Guard // nil for none
	Terms    bool          // whether the terms of the loss are measured
	// Confusion lets the reply to a test tell which class was taken for which, if the server asks.
	Confusion bool

	// Noise is where the noise of differential privacy comes from; nil for the seed.
	Noise *noise.Noise

	plan       spec.Plan
	c          *compiler
	computed   *computed
	evaluators map[string]setEvaluator
	shared     *sharedOptimizer // nil for a fresh one in every turn
	pretrains  bool             // of Server.warm
}

// Settings decide how a worker runs, not what it computes.
type Settings struct {
	Session ort.Options
	Tracer  trace.Tracer  // nil for none
	Guard   message.Guard // nil for none
	Noise   *noise.Noise  // nil for the seed
	Terms   bool          // measure the terms of the loss
}

// NewWorker returns the client side of an experiment; Close frees its sessions.
func NewWorker(e *spec.Experiment, set Settings) *Worker {
	w := &Worker{Method: e.Method, Training: e.Training, Seed: e.Plan.Seed, Tracer: set.Tracer, Guard: set.Guard,
		Terms: set.Terms, Confusion: e.Evaluate.Confusion,
		Noise: set.Noise, plan: e.Plan,
		c:        newCompiler(e.Method, e.Classes, e.Template, e.Training.Memory, set.Session),
		computed: newComputed(mostComputed)}
	w.evaluators = setEvaluators(e, set, w.computed)
	if e.Training.Shared {
		w.shared = &sharedOptimizer{tensor.Map{}}
	}
	return w
}

// Close frees the compiled sessions. No call may be in flight.
func (w *Worker) Close() error { return errors.Join(w.c.close(), closeAll(w.evaluators)) }

func (w *Worker) Task(c *spec.Client, clients int) method.Task {
	t := c.Backbone.Task()
	t.Client, t.Clients, t.Classes, t.Backbone = c.ID, clients, len(w.c.classes), c.Backbone.Name()
	return t
}

// Begin sets up one client's turn from what the server sent and what the client remembers. It gives the state with the
// private parameters drawn that the client did not have yet.
func (w *Worker) Begin(c *spec.Client, o message.Instruction, s message.ClientState) (*method.Local,
	message.ClientState) {
	task := w.Task(c, o.Total)
	s.Private = maps.Clone(s.Private)
	if s.Private == nil {
		s.Private = tensor.Map{}
	}
	for _, p := range w.Method.Params(task) {
		if p.Owner == method.Private && s.Private[p.Name] == nil {
			s.Private[p.Name] = p.Draw(w.Seed, c.ID)
		}
	}
	l := &method.Local{Task: task, Round: o.Round, Received: o.Shared, Broadcast: tensor.Map{},
		Shared: o.Shared.Clone(), Private: s.Private.Clone(), State: s.Method.Clone(), Scalars: map[string]float64{},
		Cache: map[string]any{}, Optim: w.Training.Optim,
		Traced: w.Tracer != nil, Pretrains: w.pretrains, Data: c.Train, Rand: method.Rand(w.Seed, "round",
			strconv.Itoa(o.Round), "client", strconv.Itoa(c.ID), o.Statistic)}
	for _, extras := range []tensor.Map{o.Broadcast, o.PerClient[c.ID]} {
		for k, t := range extras {
			if !strings.HasPrefix(k, message.GuardPart+"/") {
				l.Broadcast[k] = t
			}
		}
	}
	if c.Train != nil {
		l.Owned = c.Classes()
	}
	plan := w.plan
	plan.Clients = o.Total
	l.Sampling = plan.Sampling()
	if w.Noise != nil {
		l.Noise = w.Noise.Of(o.Round, true)
		if o.Round >= plan.Rounds {
			l.Noise = func([]byte) (*rand.Rand, int, error) {
				return nil, 0, fmt.Errorf("epsilon reckons with %d rounds", plan.Rounds)
			}
		}
	}
	l.Memory = sync.OnceValues(func() (tensor.Map, error) { return spec.Memory(c, w.Seed) })
	l.Eval = func(of func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
		return w.evalRows(c, l, s, of)
	}
	return l, s
}

// Train is one client's local training, with a fresh optimizer. It gives what to upload and what to remember if the
// server takes it.
func (w *Worker) Train(ctx context.Context, c *spec.Client, o message.Instruction,
	s message.ClientState) (method.Upload, message.ClientState, message.Stats, error) {
	return w.train(ctx, c, o, s, nil)
}

func (w *Worker) train(ctx context.Context, c *spec.Client, o message.Instruction, s message.ClientState,
	shared *sharedOptimizer) (method.Upload,
	message.ClientState, message.Stats, error) {
	fail := func(err error) (method.Upload, message.ClientState, message.Stats, error) {
		return method.Upload{}, message.ClientState{}, message.Stats{}, fmt.Errorf("round %d, client %d: %w", o.Round+1,
			c.ID, err)
	}
	l, s := w.Begin(c, o, s)
	p, err := w.c.step(c.Backbone, l.Task)
	if err != nil {
		return fail(err)
	}
	rate, err := w.Training.Schedule.New(w.Training.Optim.LR)
	if err != nil {
		return fail(err)
	}
	l.LR = rate(o.Round)
	tr := trace.OfClient(w.Tracer, o.Round, c.ID)
	tr.PutAll("down", l.Broadcast)
	tr.PutAll("kept", l.State)
	if err := w.Method.Begin(l); err != nil {
		return fail(err)
	}
	tr.PutAll("begin", l.Shared, l.Private)
	m, err := w.meter(c, l.Task, tr)
	if err != nil {
		return fail(err)
	}
	stats, err := w.steps(ctx, p, l, s, c.ID, shared, tr, m)
	if err != nil {
		return fail(err)
	}
	l.Data = c.Train
	up := method.Upload{Client: c.ID, N: c.Train.Len(), Shared: l.Shared, Extra: tensor.Map{}}
	if err := w.Method.Finish(l, &up); err != nil {
		return fail(err)
	}
	tr.PutAll("upload", up.Shared, up.Extra)
	if w.Guard != nil {
		if err := w.Guard.Protect(c.ID, o, &up, &stats); err != nil {
			return fail(err)
		}
	}
	own := l.Own
	if own == nil {
		own = l.Shared.Clone()
	}
	return up, message.ClientState{Private: l.Private, Own: own, Method: l.State}, stats, nil
}

// rowsPerRun is how many rows with patches or pixels are scored at a time.
const rowsPerRun = 64
