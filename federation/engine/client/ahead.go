package client

import (
	"context"
	"crypto/sha256"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
)

// fixedValue is what is fixed in the class scores of one client and is not computed yet.
type fixedValue struct {
	key  [sha256.Size]byte
	p    *program
	c    *spec.Client
	task method.ClientSpec
	feed feed
}

// ComputeAhead computes what tests of some clients need beside rows of data, such as class features of their prompts,
// for up to BatchClients of them in one run, and so many runs side by side; a test finds it as if it had computed it.
func (w *Worker) ComputeAhead(ctx context.Context, o message.Instruction, clients []*spec.Client,
	state func(client int) (message.ClientState, error), workers int) error {
	if w.BatchClients <= 1 || o.Kind != message.Test && o.Kind != message.Validate {
		return nil
	}
	x, other := w.evaluators[o.Set]
	if other {
		w = x.Worker
	}
	w.computed.begin(o.Round)
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(workers)
	run := func(values []fixedValue) { eg.Go(func() error { return w.computeFixed(ctx, values) }) }
	seen, waiting, bytes := map[[sha256.Size]byte]bool{}, map[int64][]fixedValue{}, 0
	err := func() error {
		for _, c := range clients {
			s, err := state(c.ID)
			if err != nil {
				return err
			}
			if other {
				c = x.visitor(c)
			}
			needs, err := w.fixedOfTest(c, o, s)
			if err != nil {
				return ofTurn(c, o, err)
			}
			for _, v := range needs {
				// what is forgotten before it is asked for costs double
				if seen[v.key] || bytes > w.computed.most/2 {
					continue
				}
				seen[v.key] = true
				bytes += v.p.bytes
				n := v.p.number
				if waiting[n] = append(waiting[n], v); len(waiting[n]) == w.BatchClients {
					run(waiting[n])
					waiting[n] = nil
				}
			}
		}
		for _, rest := range waiting {
			for len(rest) > 0 {
				n := w.inOneRun(len(rest))
				run(rest[:n])
				rest = rest[n:]
			}
		}
		return nil
	}()
	if failed := eg.Wait(); err == nil {
		err = failed
	}
	return err
}

// fixedOfTest is what a client's test will ask for and nobody has computed.
func (w *Worker) fixedOfTest(c *spec.Client, o message.Instruction, s message.ClientState) (out []fixedValue,
	err error) {
	l, s := w.Begin(c, o, s)
	p, err := w.c.score(c.Backbone, l.Task)
	if err != nil || p.fixed == nil || p.fixed.apart {
		return nil, err
	}
	for _, view := range w.evaluations(record.EvaluableOf(w.Method, l.Task), p, s) {
		if view == method.PersonalView && w.Training.FineTune > 0 {
			break // its parameters are not there yet
		}
		l := *l
		if view == method.PersonalView && len(s.Own) > 0 {
			l.Shared = s.Own
		}
		in := inputs{l: &l, s: s, now: parameters(&l)}
		v := fixedValue{p: p.fixed, c: c, task: l.Task}
		if v.key, err = p.fixed.digest(in); err != nil {
			return nil, err
		}
		if _, done := w.computed.find(v.key); done {
			continue
		}
		if v.feed, err = in.feed(p.fixed, callbackValues{}, 0); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// computeFixed computes values of one program in one run.
func (w *Worker) computeFixed(ctx context.Context, values []fixedValue) error {
	first, n := values[0], len(values)
	feeds := make([]feed, n)
	for i, v := range values {
		feeds[i] = v.feed
	}
	session, err := first.p.session()
	if n > 1 {
		session, err = w.c.fixedOf(first.c.Backbone, first.task, first.p, n)
	}
	if err != nil {
		return err
	}
	outs, err := runAll(ctx, session.RunKeep, session.Inputs(), feeds)
	for i := 0; i < n && err == nil; i++ {
		_, err = w.computed.once(values[i].key, func() (any, int, error) { return outs[i], outs[i].Bytes(), nil })
	}
	return err
}
