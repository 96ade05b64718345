package engine

import (
	"context"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/wire"
)

// Pool is a Cohort of simulated clients in this process: up to Workers of them run at a time.
type Pool struct {
	Worker  *Worker
	Clients []*Client
	Workers int
	Store   *Store
	// Elsewhere does the clients' turns in place of Worker; nil for Worker.
	Elsewhere Answerer
	// Encode sends every message through its encoded form, as a network would.
	Encode bool
	// Done is called after each client's turn, from any goroutine; may be nil.
	Done func(o Order, client int)
	// Lost tells that a client's answer to an order never arrives; nil for never. Tests are not lost.
	Lost func(o Order, client int) bool
	// Sent sees every answer as it is encoded, with Encode, from any goroutine; may be nil.
	Sent func(o Order, client int, message []byte)
}

// Run gives an order to the named clients.
func (p *Pool) Run(ctx context.Context, o Order) ([]Reply, error) {
	replies := make([]Reply, len(o.Clients))
	lost := make([]bool, len(o.Clients))
	eg, ctx := errgroup.WithContext(ctx)
	workers := max(1, p.Workers)
	if o.Kind == Train && p.Worker.Train.Shared { // each goes on with what the one before it left
		workers = 1
	}
	eg.SetLimit(workers)
	for i, id := range o.Clients {
		eg.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			var err error
			replies[i], err = p.one(ctx, p.Clients[id], o.For(id))
			lost[i] = !o.Kind.Tests() && p.Lost != nil && p.Lost(o, id)
			if err == nil && p.Done != nil {
				p.Done(o, id)
			}
			return err
		})
	}
	if err := eg.Wait(); err != nil {
		return nil, err
	}
	var came []Reply
	for i, r := range replies {
		if !lost[i] {
			came = append(came, r)
		}
	}
	return came, nil
}

func (p *Pool) one(ctx context.Context, c *Client, o Order) (Reply, error) {
	r := Reply{Client: c.ID, Down: wire.Size(o.tensors())}
	var err error
	if p.Encode {
		if o, err = reencode(o); err != nil {
			return r, err
		}
	}
	reply, next, err := p.answer(ctx, c, o)
	r.Upload, r.Stats, r.Scores = reply.Upload, reply.Stats, reply.Scores
	if err != nil {
		return r, err
	}
	if o.Kind.Tests() {
		return p.decoded(r)
	}
	if next != nil {
		if err := p.Store.Hold(o.Round, c.ID, *next); err != nil {
			return r, err
		}
	}
	r.Up = r.UploadSize()
	if p.Encode {
		message, err := wire.Encode(r.Tensors())
		if err != nil {
			return r, err
		}
		if p.Sent != nil {
			p.Sent(o, c.ID, message)
		}
		back, err := wire.Decode(message)
		if err != nil {
			return r, err
		}
		return r.With(back)
	}
	return r, nil
}

// decoded is the reply to a test as it arrives.
func (p *Pool) decoded(r Reply) (Reply, error) {
	if !p.Encode || len(r.Upload.Extra) == 0 {
		return r, nil
	}
	m, err := roundTrip(r.Tensors())
	if err != nil {
		return r, err
	}
	return r.With(m)
}

func (p *Pool) answer(ctx context.Context, c *Client, o Order) (Reply, *State, error) {
	state := func() (State, error) { return p.Store.Get(c.ID) }
	if p.Elsewhere != nil {
		return p.Worker.guarded(ctx, p.Elsewhere, c, o, state)
	}
	s, err := state()
	if err != nil {
		return Reply{}, nil, err
	}
	return p.Worker.Answer(ctx, c, o, s)
}

// Accept keeps the held states of clients whose upload counted, and forgets those of the others.
func (p *Pool) Accept(round int, clients []int) error { return p.Store.Accept(round, clients) }
