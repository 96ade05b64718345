package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Client is one participant: its backbone, its data, its name for reports.
type Client struct {
	ID       int
	Backbone Backbone
	Domain   string
	Train    method.Data
	Val      method.Data // nil for none
	Test     method.Data
}

// classes are those that the client has examples of to train on.
func (c *Client) classes() []int64 {
	return slices.Compact(slices.Sorted(slices.Values(c.Train.Labels())))
}

// Training says how clients train.
type Training struct {
	Epochs   int
	Batch    int
	DropLast bool // leave out a last batch that is not full, when there is a full one
	Optim    optim.Config
	Schedule optim.Schedule // over rounds
	Each     []Pace         // by client, repeated; nil for all alike
	// Shared has one optimizer go from client to client, and from round to round, with what it remembers: momentum
	// leaks between clients. They train one after the other, by number, in one process.
	Shared bool
	// Memory bounds, in bytes, what a step with text prompts for each image computes at a time; 0 is 4 GiB.
	Memory int
}

// State is what one client remembers between rounds. A State is never changed, only replaced.
type State struct {
	Private tensor.Map // its private parameters
	Own     tensor.Map // the shared parameters as it last left them
	Kept    tensor.Map // what the method kept
}

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

// NewWorker returns the client side of an experiment; Close frees its sessions. Of settings it reads Session, Tracer,
// Guard, Noise and Terms.
func NewWorker(e *Experiment, set Settings) *Worker {
	w := &Worker{Method: e.Method, Train: e.Training, Seed: e.Plan.Seed, Tracer: set.Tracer, Guard: set.Guard,
		Terms: set.Terms, Confusion: e.Evaluate.Confusion,
		Noise: set.Noise, plan: e.Plan,
		c: newCompiler(e.Method, e.Classes, e.Template, e.Training.Memory, set.Session), computed: newComputed(mostComputed)}
	w.exams = examiners(e, set, w.computed)
	if e.Training.Shared {
		w.shared = &sharedOptimizer{tensor.Map{}}
	}
	return w
}

// Close frees the compiled sessions. No call may be in flight.
func (w *Worker) Close() error { return errors.Join(w.c.close(), closeAll(w.exams)) }

// Stats are the numbers of one client's turn.
type Stats struct {
	Loss  float64 // mean over its steps
	Steps int
	Terms *LossTerms // nil where they are not measured
}

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

// steps is the local training loop.
func (w *Worker) steps(ctx context.Context, p *program, l *method.Local, s State, client int, shared *sharedOptimizer,
	tr tracer,
	m *termMeter) (Stats, error) {
	if len(p.params) == 0 {
		return Stats{}, nil
	}
	opt, err := optim.New(w.Train.Optim)
	if err == nil {
		err = shared.load(opt, both(l))
	}
	if err != nil {
		return Stats{}, err
	}
	host := hosts{}
	sum := 0.0
	train, most := w.Train.of(client)
	for epoch := range train.Epochs {
		order := l.Data.Order(l.Rand)
		for _, rows := range train.batches(order) {
			if most > 0 && l.Steps == most {
				break
			}
			loss, err := w.step(ctx, p, opt, l, s, rows, host, epoch, tr, m)
			if err != nil {
				return Stats{}, fmt.Errorf("step %d: %w", l.Steps, err)
			}
			sum += loss
			l.Steps++
		}
	}
	if l.Steps == 0 {
		return Stats{}, fmt.Errorf("the data gave no rows in %d epochs", train.Epochs)
	}
	shared.keep(opt, both(l))
	return Stats{Loss: sum / float64(l.Steps), Steps: l.Steps, Terms: m.mean()}, nil
}

// step is one optimizer step; it gives the loss before it.
func (w *Worker) step(ctx context.Context, p *program, opt *optim.Optimizer, l *method.Local, s State, rows []int,
	host hosts, epoch int,
	tr tracer, m *termMeter) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	batch, err := l.Data.Batch(rows, l.Rand, p.also...)
	if err != nil {
		return 0, err
	}
	if err := checkBatch(batch, rows); err != nil {
		return 0, err
	}
	now := both(l)
	in := inputs{l: l, s: s, now: now, batch: batch}
	feed, out, err := p.inParts(ctx, in, host, epoch)
	if err != nil {
		return 0, err
	}
	grads, err := gradients(p, in, out, gradOutput, host)
	l.Beside = map[string]tensor.Map{}
	for _, name := range p.beside {
		if err == nil {
			l.Beside[name], err = gradients(p, in, out, besideOutput+name+"/"+gradOutput, host)
		}
	}
	if err == nil {
		err = m.step(ctx, p, in, feed, host, epoch, grads)
	}
	if err == nil {
		err = w.Method.Adjust(l, grads)
	}
	if err != nil {
		return 0, err
	}
	m.adjusted(grads)
	tr.step(l.Steps, batch, p, feed, out[lossOutput], grads, l.LR)
	if err := finite("the gradient of ", grads); err != nil {
		return 0, err
	}
	loss := float64(out[lossOutput].Data[0])
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return 0, fmt.Errorf("the loss is %v; %s", loss, calmer)
	}
	if err := opt.Step(now, grads, l.LR); err != nil {
		return 0, fmt.Errorf("%w; %s", err, calmer)
	}
	tr.after(l.Steps, now)
	return loss, finite("parameter ", now)
}

// batches cuts an order of rows.
func (t Training) batches(order []int) [][]int {
	var out [][]int
	for rows := range slices.Chunk(order, t.Batch) {
		if t.DropLast && len(rows) < t.Batch && len(out) > 0 {
			break
		}
		out = append(out, rows)
	}
	return out
}

// both is one view of all parameters being trained; the tensors are shared.
func both(l *method.Local) tensor.Map {
	m := tensor.Map{}
	for _, part := range []tensor.Map{l.Shared, l.Private} {
		for k, t := range part {
			m[k] = t
		}
	}
	return m
}

// evalRows computes a node over all training rows of a client.
func (w *Worker) evalRows(c *Client, l *method.Local, s State, of func(*method.Scope) graph.Node) (*tensor.Tensor,
	error) {
	p, err := w.c.eval(c.Backbone, l.Task, of)
	if err != nil {
		return nil, err
	}
	if p.byRow {
		return w.scores(context.Background(), p, l, s, l.Data)
	}
	return w.run(context.Background(), p, l, s, l.Data)
}

// run computes a program's value over all rows of a data set.
func (w *Worker) run(ctx context.Context, p *program, l *method.Local, s State, data method.Data) (*tensor.Tensor,
	error) {
	return w.runOn(ctx, p, l, s, data, all(data.Len()))
}

// scores computes class scores [N,C], or another value [N,...], of all rows of a data set, in parts where rows are
// large.
func (w *Worker) scores(ctx context.Context, p *program, l *method.Local, s State, data method.Data) (*tensor.Tensor,
	error) {
	most := p.atOnce()
	if most == 0 || data.Len() <= most {
		return w.run(ctx, p, l, s, data)
	}
	out := &tensor.Tensor{}
	for rows := range slices.Chunk(all(data.Len()), most) {
		part, err := w.runOn(ctx, p, l, s, data, rows)
		if err != nil {
			return nil, err
		}
		out.Shape = append([]int{data.Len()}, part.Shape[1:]...)
		out.Data = append(out.Data, part.Data...)
	}
	return out, nil
}

func (w *Worker) runOn(ctx context.Context, p *program, l *method.Local, s State, data method.Data,
	rows []int) (*tensor.Tensor, error) {
	in := inputs{l: l, s: s, now: both(l)}
	var err error
	if p.rows() {
		if in.batch, err = data.Batch(rows, l.Rand, p.also...); err != nil {
			return nil, err
		}
		if err := checkBatch(in.batch, nil); err != nil {
			return nil, err
		}
	}
	if in.fixed, err = w.fixedValues(ctx, p.fixed, in); err != nil {
		return nil, err
	}
	feed, err := in.feed(p, hosts{}, 0)
	if err != nil {
		return nil, err
	}
	out, err := p.session.Run(ctx, feed)
	if err != nil {
		return nil, err
	}
	return out[valueOutput], nil
}
