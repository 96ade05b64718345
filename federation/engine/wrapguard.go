package engine

import (
	"context"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
	"strings"
)

// Answerer does what an order asks of one client, as Worker.Answer does; state gives what the client remembers, which
// need not be in memory before the order can be done. It must be safe for concurrent use.
type Answerer interface {
	Answer(ctx context.Context, c *Client, o Order, state func() (State, error)) (r Reply, next *State, err error)
}

// guarded lets something else do a client's turn. The client's Guard stays here, since what it remembers must not
// travel: the other side gets the order without what is for the guard.
func (w *Worker) guarded(ctx context.Context, by Answerer, c *Client, o Order, state func() (State, error)) (Reply,
	*State, error) {
	if w.Guard == nil {
		return by.Answer(ctx, c, o, state)
	}
	if o.Kind == Ask {
		if answer, ok, err := w.Guard.Answer(c.ID, o); ok || err != nil {
			return Reply{Client: c.ID, Upload: method.Upload{Client: c.ID, N: 1, Extra: answer}}, nil, err
		}
	}
	open := o
	open.Sealed, open.Down = false, unguarded(o.Down)
	if e, ok := o.Each[c.ID]; ok {
		open.Each = map[int]tensor.Map{c.ID: unguarded(e)}
	}
	r, next, err := by.Answer(ctx, c, open, state)
	if err == nil && o.Kind == Train {
		err = w.Guard.Seal(c.ID, o, &r.Upload, &r.Stats)
	}
	return r, next, err
}

func unguarded(m tensor.Map) tensor.Map {
	out := tensor.Map{}
	for name, t := range m {
		if !strings.HasPrefix(name, GuardPart+"/") {
			out[name] = t
		}
	}
	return out
}
