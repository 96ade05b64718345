package engine

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/runtime/tensor"
)

// Pool is a Cohort of simulated clients in this process: up to Workers of them run at a time.
type Pool struct {
	Settings Settings
	Worker   *client.Worker
	Clients  []*spec.Client
	Store    *state.Store

	overhead overhead
}

// Run sends an instruction to the named clients; an instruction to validate, to those that have validation data.
func (p *Pool) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if o.Kind == message.Validate { // an executor need not be asked for nothing
		o.Clients = slices.DeleteFunc(slices.Clone(o.Clients), func(id int) bool {
			val := p.Clients[id].Val
			return val == nil || val.Len() == 0
		})
	}
	replies := make([]message.Reply, len(o.Clients))
	eg, ctx := errgroup.WithContext(ctx)
	workers := max(1, p.Settings.Workers)
	if o.Kind == message.Train && p.Worker.Experiment.Training.Shared { // one optimizer, for one client at a time
		workers = 1
	}
	clients := make([]*spec.Client, len(o.Clients))
	for i, id := range o.Clients {
		clients[i] = p.Clients[id]
	}
	groups, err := p.groups(ctx, o, clients)
	if err != nil {
		return nil, err
	}
	work := make(chan []int, len(groups))
	for _, group := range groups {
		work <- group
	}
	close(work)
	for range min(workers, len(groups)) { // a goroutine for each turn would grow a stack for each
		eg.Go(func() error {
			for group := range work {
				if err := ctx.Err(); err != nil {
					return err
				}
				got, err := p.runGroup(ctx, o, group)
				if err != nil {
					return err
				}
				for k, i := range group {
					replies[i] = got[k]
					if p.Settings.OnTurn != nil {
						p.Settings.OnTurn(o, o.Clients[i])
					}
				}
			}
			return nil
		})
	}
	return replies, eg.Wait()
}

// groups divides the clients of an instruction, by their index, into groups whose turns are computed together. Prefixes
// of tests that can be computed together are computed here.
func (p *Pool) groups(ctx context.Context, o message.Instruction, clients []*spec.Client) ([][]int, error) {
	if p.Settings.Executor == nil {
		if o.Kind == message.Train {
			return p.Worker.Groups(clients, o.Total)
		}
		if err := p.Worker.ComputeAhead(ctx, o, clients, p.Store.Get, max(1, p.Settings.Workers)); err != nil {
			return nil, err
		}
	}
	return slices.Collect(slices.Chunk(tensor.Indices(len(clients)), 1)), nil
}

func (p *Pool) runGroup(ctx context.Context, o message.Instruction, group []int) ([]message.Reply, error) {
	jobs, replies := make([]client.Job, len(group)), make([]message.Reply, len(group))
	for k, i := range group {
		j := &jobs[k]
		j.Client, j.Instruction = p.Clients[o.Clients[i]], o.ForClient(o.Clients[i])
		replies[k] = message.Reply{Client: j.Client.ID, Down: message.EncodedSize(j.Instruction.Tensors())}
		if p.Settings.Encode {
			began := time.Now()
			var err error
			if j.Instruction, err = message.Reencode(j.Instruction); err != nil {
				return nil, err
			}
			since(&p.overhead.messages, began)
		}
	}
	answers, next, err := p.answer(ctx, jobs)
	if err != nil {
		return nil, err
	}
	for k, j := range jobs {
		r := &replies[k]
		r.Upload, r.Stats, r.Scores = answers[k].Upload, answers[k].Stats, answers[k].Scores
		if *r, err = p.received(j.Instruction, *r, next[k]); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// received returns a reply as the server gets it. next is the client's next state, nil for an unchanged one.
func (p *Pool) received(o message.Instruction, r message.Reply, next *message.ClientState) (message.Reply, error) {
	if next != nil {
		began := time.Now()
		if err := p.Store.Stage(o.Round, r.Client, *next); err != nil {
			return r, err
		}
		since(&p.overhead.disk, began)
	}
	m := r.Tensors()
	if !o.Kind.Tests() {
		r.Up = r.UploadSize()
	}
	if !p.Settings.Encode || len(m) == 0 {
		return r, nil
	}
	defer since(&p.overhead.messages, time.Now())
	m, err := message.RoundTrip(m)
	if err != nil {
		return r, err
	}
	return o.WithReplyTensors(r, m)
}

func (p *Pool) answer(ctx context.Context, jobs []client.Job) ([]message.Reply, []*message.ClientState, error) {
	replies, next := make([]message.Reply, len(jobs)), make([]*message.ClientState, len(jobs))
	first := jobs[0]
	var err error
	if p.Settings.Executor != nil {
		state := func() (message.ClientState, error) { return p.Store.Get(first.Client.ID) }
		replies[0], next[0], err = p.Worker.ExecuteRemotely(ctx, p.Settings.Executor, first.Client, first.Instruction,
			state)
		return replies, next, err
	}
	for k := range jobs {
		began := time.Now()
		jobs[k].State, err = p.Store.Get(jobs[k].Client.ID)
		since(&p.overhead.disk, began)
		if err != nil {
			return nil, nil, err
		}
	}
	if first.Instruction.Kind != message.Train {
		replies[0], next[0], err = p.Worker.Execute(ctx, first.Client, first.Instruction, jobs[0].State)
		return replies, next, err
	}
	replies, states, err := p.Worker.TrainTogether(ctx, jobs)
	for k := range states {
		next[k] = &states[k]
	}
	return replies, next, err
}

// Accept keeps the new states of clients whose upload was merged, and drops those of the others.
func (p *Pool) Accept(round int, clients []int) error { return p.Store.Accept(round, clients) }
