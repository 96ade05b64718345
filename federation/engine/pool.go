package engine

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/local"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/wire"
)

// Pool is a Cohort of simulated clients in this process: up to Workers of them run at a time.
type Pool struct {
	Worker  *local.Worker
	Clients []*spec.Client
	Workers int
	Store   *state.Store
	// Executor does the clients' turns in place of Worker; nil for Worker.
	Executor local.RemoteExecutor
	// Encode sends every message through its encoded form, as a network would.
	Encode bool
	// Done is called after each client's turn, from any goroutine; may be nil.
	Done func(o message.Instruction, client int)
	// Lost tells that a client's answer to an instruction never arrives; nil for never. Tests are not lost.
	Lost func(o message.Instruction, client int) bool
	// Sent sees every answer as it is encoded, with Encode, from any goroutine; may be nil.
	Sent func(o message.Instruction, client int, message []byte)

	overhead overhead
}

// Run gives an instruction to the named clients.
func (p *Pool) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies := make([]message.Reply, len(o.Clients))
	lost := make([]bool, len(o.Clients))
	eg, ctx := errgroup.WithContext(ctx)
	workers := max(1, p.Workers)
	if o.Kind == message.Train && p.Worker.Training.Shared { // each goes on with what the one before it left
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
	var came []message.Reply
	for i, r := range replies {
		if !lost[i] {
			came = append(came, r)
		}
	}
	return came, nil
}

func (p *Pool) one(ctx context.Context, c *spec.Client, o message.Instruction) (message.Reply, error) {
	r := message.Reply{Client: c.ID, Down: wire.Size(o.Tensors())}
	var err error
	if p.Encode {
		began := time.Now()
		if o, err = message.Reencode(o); err != nil {
			return r, err
		}
		since(&p.overhead.messages, began)
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
		began := time.Now()
		if err := p.Store.Hold(o.Round, c.ID, *next); err != nil {
			return r, err
		}
		since(&p.overhead.disk, began)
	}
	r.Up = r.UploadSize()
	if p.Encode {
		defer since(&p.overhead.messages, time.Now())
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
func (p *Pool) decoded(r message.Reply) (message.Reply, error) {
	if !p.Encode || len(r.Upload.Extra) == 0 {
		return r, nil
	}
	m, err := message.RoundTrip(r.Tensors())
	if err != nil {
		return r, err
	}
	return r.With(m)
}

func (p *Pool) answer(ctx context.Context, c *spec.Client, o message.Instruction) (message.Reply, *message.ClientState,
	error) {
	state := func() (message.ClientState, error) { return p.Store.Get(c.ID) }
	if p.Executor != nil {
		return p.Worker.ExecuteRemotely(ctx, p.Executor, c, o, state)
	}
	began := time.Now()
	s, err := state()
	since(&p.overhead.disk, began)
	if err != nil {
		return message.Reply{}, nil, err
	}
	return p.Worker.Execute(ctx, c, o, s)
}

// Accept keeps the held states of clients whose upload counted, and forgets those of the others.
func (p *Pool) Accept(round int, clients []int) error { return p.Store.Accept(round, clients) }
