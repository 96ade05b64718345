package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	Test     method.Data
}

// Training says how clients train.
type Training struct {
	Epochs   int
	Batch    int
	DropLast bool // leave out a last batch that is not full, when there is a full one
	Optim    optim.Config
	Schedule optim.Schedule // over rounds
}

// State is what one client remembers between rounds. A State is never changed, only replaced.
type State struct {
	Private tensor.Map // its private parameters
	Own     tensor.Map // the shared parameters as it last left them
	Kept    tensor.Map // what the method kept
}

// Worker does a client's part. It is the same code behind every Cohort and safe for concurrent use.
type Worker struct {
	Method method.Method
	Train  Training
	Seed   uint64
	Tracer Tracer // nil for none

	c *compiler
}

// Stats are the numbers of one client's turn.
type Stats struct {
	Loss  float64 // mean over its steps
	Steps int
}

func (w *Worker) task(c *Client, clients int) method.Task {
	t := c.Backbone.Task()
	t.Client, t.Clients, t.Classes = c.ID, clients, len(w.c.classes)
	return t
}

// begin sets up one client's turn from what the server sent and what the client remembers.
func (w *Worker) begin(c *Client, o Order, s State) *method.Local {
	l := &method.Local{Task: w.task(c, o.Of), Round: o.Round, Received: o.Shared, Down: tensor.Map{},
		Shared: o.Shared.Clone(), Private: s.Private.Clone(), Kept: s.Kept.Clone(), Scalars: map[string]float64{},
		Data: c.Train, Rand: method.Rand(w.Seed, "round", strconv.Itoa(o.Round), "client", strconv.Itoa(c.ID), o.Survey)}
	for _, extras := range []tensor.Map{o.Down, o.Each[c.ID]} {
		for k, t := range extras {
			l.Down[k] = t
		}
	}
	for _, p := range w.Method.Params(l.Task) {
		if p.Owner == method.Private && l.Private[p.Name] == nil {
			l.Private[p.Name] = method.Draw(w.Seed, c.ID, p.Name, p.Shape, p.Std)
		}
	}
	l.Eval = func(of func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
		return w.evalRows(c, l, s, of)
	}
	return l
}

// RunTrain is one client's local training. It gives what to upload and what to remember if the server takes it.
func (w *Worker) RunTrain(ctx context.Context, c *Client, o Order, s State) (method.Upload, State, Stats, error) {
	fail := func(err error) (method.Upload, State, Stats, error) {
		return method.Upload{}, s, Stats{}, fmt.Errorf("client %d: %w", c.ID, err)
	}
	l := w.begin(c, o, s)
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
	tr.putAll("down", l.Down)
	tr.putAll("kept", l.Kept)
	if err := w.Method.Begin(l); err != nil {
		return fail(err)
	}
	tr.putAll("begin", l.Shared, l.Private)
	stats, err := w.steps(ctx, p, l, s, tr)
	if err != nil {
		return fail(err)
	}
	up := method.Upload{Client: c.ID, N: c.Train.Len(), Shared: l.Shared, Extra: tensor.Map{}}
	if err := w.Method.Finish(l, &up); err != nil {
		return fail(err)
	}
	tr.putAll("upload", up.Shared, up.Extra)
	return up, State{Private: l.Private, Own: l.Shared.Clone(), Kept: l.Kept}, stats, nil
}

// steps is the local training loop.
func (w *Worker) steps(ctx context.Context, p *program, l *method.Local, s State, tr tracer) (Stats, error) {
	if len(p.params) == 0 {
		return Stats{}, nil
	}
	opt, err := optim.New(w.Train.Optim)
	if err != nil {
		return Stats{}, err
	}
	host := hosts{}
	sum := 0.0
	for epoch := range w.Train.Epochs {
		order := l.Data.Order(l.Rand)
		for _, rows := range w.Train.batches(order) {
			if err := ctx.Err(); err != nil {
				return Stats{}, err
			}
			batch, err := l.Data.Batch(rows, l.Rand)
			if err != nil {
				return Stats{}, err
			}
			feed, err := w.feed(p, l, s, batch, host, epoch)
			if err != nil {
				return Stats{}, err
			}
			out, err := p.session.Run(ctx, feed)
			if err != nil {
				return Stats{}, err
			}
			grads, err := gradients(p, l, out, feed)
			if err == nil {
				err = w.Method.Adjust(l, grads)
			}
			if err != nil {
				return Stats{}, err
			}
			tr.step(l.Steps, batch, p, feed, out[lossOutput], grads, l.LR)
			if err := opt.Step(both(l), grads, l.LR); err != nil {
				return Stats{}, fmt.Errorf("round %d, step %d: %w; lower train.lr or set train.clip_norm", l.Round, l.Steps, err)
			}
			tr.after(l.Steps, both(l))
			sum += float64(out[lossOutput].Data[0])
			l.Steps++
		}
	}
	return Stats{Loss: sum / float64(max(1, l.Steps)), Steps: l.Steps}, nil
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

// feed collects the inputs of a program from a client's tensors and a batch.
func (w *Worker) feed(p *program, l *method.Local, s State, batch tensor.Map, host hosts, epoch int) (tensor.Map, error) {
	feed := tensor.Map{}
	now := both(l)
	for _, in := range p.inputs {
		kind, name, _ := strings.Cut(in, "/")
		var t *tensor.Tensor
		switch kind {
		case method.ParamInput:
			t = now[name]
		case method.ReceivedInput:
			if t = l.Received[name]; t == nil {
				t = s.private(name, now)
			}
		case method.BeforeInput:
			if t = s.Own[name]; t == nil {
				if t = l.Received[name]; t == nil {
					t = s.private(name, now)
				}
			}
		case method.DownInput:
			t = l.Down[name]
		case method.KeptInput:
			t = l.Kept[name]
		case method.ScalarInput:
			if v, ok := l.Scalars[name]; ok {
				t = tensor.Of([]float32{float32(v)}, 1)
			}
		case method.HostInput:
			continue
		default:
			t = batch[in]
		}
		if t == nil {
			return nil, fmt.Errorf("the step needs %s, which nothing provides", in)
		}
		feed[in] = t
	}
	return feed, host.compute(p, feed, now, l, epoch)
}

func (s State) private(name string, now tensor.Map) *tensor.Tensor {
	if t := s.Private[name]; t != nil {
		return t
	}
	return now[name]
}

// evalRows computes a node over all training rows of a client.
func (w *Worker) evalRows(c *Client, l *method.Local, s State, of func(*method.Scope) graph.Node) (*tensor.Tensor, error) {
	p, err := w.c.eval(c.Backbone, l.Task, of)
	if err != nil {
		return nil, err
	}
	return w.run(context.Background(), p, l, s, l.Data)
}

// run computes a program's value over all rows of a data set.
func (w *Worker) run(ctx context.Context, p *program, l *method.Local, s State, data method.Data) (*tensor.Tensor, error) {
	batch, err := data.Batch(all(data.Len()), l.Rand)
	if err != nil {
		return nil, err
	}
	feed, err := w.feed(p, l, s, batch, hosts{}, 0)
	if err != nil {
		return nil, err
	}
	out, err := p.session.Run(ctx, feed)
	if err != nil {
		return nil, err
	}
	return out[valueOutput], nil
}
