package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// Worker does a client's part. It is the same code behind every Cohort and safe for concurrent use. NewWorker makes
// one.
type Worker struct {
	Method method.Method
	Train  Training
	Seed   uint64
	Tracer Tracer // nil for none
	Guard  Guard  // nil for none
	Terms  bool   // whether the terms of the loss are measured
	// Confusion lets the reply to a test tell which class was taken for which, if the server asks.
	Confusion bool

	// Noise is where the noise of differential privacy comes from; nil for the seed.
	Noise *Noise

	plan      Plan
	c         *compiler
	computed  *computed
	exams     map[string]examiner
	shared    *sharedOptimizer // nil for a fresh one in every turn
	pretrains bool             // of Server.warm
}

// WorkerSettings decide how a worker runs, not what it computes.
type WorkerSettings struct {
	Session ort.Options
	Tracer  Tracer // nil for none
	Guard   Guard  // nil for none
	Noise   *Noise // nil for the seed
	Terms   bool   // measure the terms of the loss
}

// NewWorker returns the client side of an experiment; Close frees its sessions.
func NewWorker(e *Experiment, set WorkerSettings) *Worker {
	w := &Worker{Method: e.Method, Train: e.Training, Seed: e.Plan.Seed, Tracer: set.Tracer, Guard: set.Guard,
		Terms: set.Terms, Confusion: e.Evaluate.Confusion,
		Noise: set.Noise, plan: e.Plan,
		c: newCompiler(e.Method, e.Classes, e.Template, set.Session), computed: newComputed(mostComputed)}
	w.exams = examiners(e, set, w.computed)
	if e.Training.Shared {
		w.shared = &sharedOptimizer{tensor.Map{}}
	}
	return w
}

// Close frees the compiled sessions. No call may be in flight.
func (w *Worker) Close() error { return errors.Join(w.c.close(), closeAll(w.exams)) }

func (w *Worker) task(c *Client, clients int) method.Task {
	t := c.Backbone.Task()
	t.Client, t.Clients, t.Classes, t.Backbone = c.ID, clients, len(w.c.classes), c.Backbone.Name()
	return t
}

// begin sets up one client's turn from what the server sent and what the client remembers. It gives the state with the
// private parameters drawn that the client did not have yet.
func (w *Worker) begin(c *Client, o Order, s State) (*method.Local, State) {
	task := w.task(c, o.Of)
	s.Private = maps.Clone(s.Private)
	if s.Private == nil {
		s.Private = tensor.Map{}
	}
	for _, p := range w.Method.Params(task) {
		if p.Owner == method.Private && s.Private[p.Name] == nil {
			s.Private[p.Name] = method.Draw(w.Seed, c.ID, p.Name, p.Shape, p.Std)
		}
	}
	l := &method.Local{Task: task, Round: o.Round, Received: o.Shared, Broadcast: tensor.Map{},
		Shared: o.Shared.Clone(), Private: s.Private.Clone(), State: s.Kept.Clone(), Scalars: map[string]float64{},
		Cache:  map[string]any{},
		Traced: w.Tracer != nil, Pretrains: w.pretrains, Data: c.Train, Rand: method.Rand(w.Seed, "round",
			strconv.Itoa(o.Round), "client", strconv.Itoa(c.ID), o.Survey)}
	for _, extras := range []tensor.Map{o.Down, o.Each[c.ID]} {
		for k, t := range extras {
			if !strings.HasPrefix(k, GuardPart+"/") {
				l.Broadcast[k] = t
			}
		}
	}
	if c.Train != nil {
		l.Owned = c.classes()
	}
	plan := w.plan
	plan.Clients = o.Of
	l.Drawn = plan.Sampling()
	if w.Noise != nil {
		l.Noise = w.Noise.of(o.Round, true)
		if o.Round >= plan.Rounds {
			l.Noise = func([]byte) (*rand.Rand, int, error) {
				return nil, 0, fmt.Errorf("epsilon reckons with %d rounds", plan.Rounds)
			}
		}
	}
	l.Memory = sync.OnceValues(func() (tensor.Map, error) { return memory(c, w.Seed) })
	l.Eval = func(of func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
		return w.evalRows(c, l, s, of)
	}
	return l, s
}

// RunTrain is one client's local training, with a fresh optimizer. It gives what to upload and what to remember if the
// server takes it.
func (w *Worker) RunTrain(ctx context.Context, c *Client, o Order, s State) (method.Upload, State, Stats, error) {
	return w.runTrain(ctx, c, o, s, nil)
}

func (w *Worker) runTrain(ctx context.Context, c *Client, o Order, s State, shared *sharedOptimizer) (method.Upload,
	State, Stats, error) {
	fail := func(err error) (method.Upload, State, Stats, error) {
		return method.Upload{}, State{}, Stats{}, fmt.Errorf("round %d, client %d: %w", o.Round, c.ID, err)
	}
	l, s := w.begin(c, o, s)
	p, err := w.c.step(c.Backbone, l.Task)
	if err != nil {
		return fail(err)
	}
	rate, err := w.Train.Schedule.New(w.Train.Optim.LR)
	if err != nil {
		return fail(err)
	}
	l.LR = rate(o.Round)
	tr := traceAt(w.Tracer, o.Round, c.ID)
	tr.putAll("down", l.Broadcast)
	tr.putAll("kept", l.State)
	if err := w.Method.Begin(l); err != nil {
		return fail(err)
	}
	tr.putAll("begin", l.Shared, l.Private)
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
	tr.putAll("upload", up.Shared, up.Extra)
	if w.Guard != nil {
		if err := w.Guard.Seal(c.ID, o, &up, &stats); err != nil {
			return fail(err)
		}
	}
	return up, State{Private: l.Private, Own: l.Shared.Clone(), Kept: l.State}, stats, nil
}

// atOnce is how many rows with patches or pixels are scored at a time.
const atOnce = 64
