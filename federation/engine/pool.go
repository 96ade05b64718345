package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/runtime/convert"
)

// turns runs the turns of clients: a client.Worker, or one whose turns are executed elsewhere.
type turns interface {
	// Groups divides jobs, by their index, into groups whose turns are computed together.
	Groups(ctx context.Context, jobs []client.Job, workers int) ([][]int, error)
	// Turns runs the turns of a group. The next state of a client is nil if it is unchanged.
	Turns(ctx context.Context, jobs []client.Job) ([]message.Reply, []*message.ClientState, error)
}

// pool is a Cohort of simulated clients in this process: up to Settings.Workers of them run at a time.
type pool struct {
	settings Settings
	members  []message.Participant
	clients  []*spec.Client
	worker   *client.Worker
	turns    turns // of the clients
	store    *state.Store
	cost     *overhead

	mu      sync.Mutex
	refused []message.Refusal // since the last report
}

func (p *pool) Participants() []message.Participant { return p.members }
func (p *pool) Traits() message.Traits              { return message.Traits{} }

// Run sends an instruction to the named clients; an instruction to validate, to those that have validation data.
func (p *pool) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	if instruction.Kind == message.Validate { // an executor need not be asked for nothing
		instruction.Clients = slices.DeleteFunc(slices.Clone(instruction.Clients), func(id int) bool {
			val := p.clients[id].Val
			return val == nil || val.Len() == 0
		})
	}

	jobs := convert.Slice(instruction.Clients, func(id int) client.Job {
		return client.Job{Client: p.clients[id], Instruction: instruction.ForClient(id), State: p.state(id)}
	})

	groups, err := p.turns.Groups(ctx, jobs, p.settings.Workers)
	if err != nil {
		return nil, err
	}

	work := make(chan []int, len(groups))
	for _, group := range groups {
		work <- group
	}

	close(work)
	replies := make([]message.Reply, len(jobs))
	eg, ctx := errgroup.WithContext(ctx)
	workers := p.settings.Workers

	// one optimizer, for one client at a time
	if instruction.Kind == message.Train && p.worker.Experiment.Training.Shared {
		workers = 1
	}

	for range min(workers, len(groups)) { // a goroutine for each turn would grow a stack for each
		eg.Go(func() error {
			for group := range work {
				if err := ctx.Err(); err != nil {
					return err
				}
				now := convert.Slice(group, func(i int) client.Job { return jobs[i] })
				got, err := p.run(ctx, now)
				if err != nil {
					return err
				}
				for k, i := range group {
					replies[i] = got[k]
					p.settings.OnTurn(instruction, instruction.Clients[i])
				}
			}

			return nil
		})
	}

	return replies, eg.Wait()
}

// state returns the state of a client when it is asked for.
func (p *pool) state(id int) func() (message.ClientState, error) {
	return func() (message.ClientState, error) {
		defer since(&p.cost.disk, time.Now())
		return p.store.Get(id)
	}
}

// run runs the turns of a group and returns the replies as the server gets them.
func (p *pool) run(ctx context.Context, jobs []client.Job) (replies []message.Reply, err error) {
	down := make([]int, len(jobs))
	for k := range jobs {
		o := &jobs[k].Instruction
		down[k] = message.EncodedSize(o.Tensors())
		if err := p.encoded(func() (err error) { *o, err = message.Reencode(*o); return err }); err != nil {
			return nil, err
		}
	}

	replies, next, err := p.turns.Turns(ctx, jobs)
	if err != nil {
		return nil, err
	}

	for k, job := range jobs {
		reply := &replies[k]
		if reply.Down = down[k]; !job.Instruction.Kind.Tests() {
			reply.Up = reply.UploadSize()
		}

		if next[k] != nil {
			began := time.Now()
			if err := p.store.Stage(job.Instruction.Round, reply.Client, *next[k]); err != nil {
				return nil, err
			}
			since(&p.cost.disk, began)
		}

		reencode := func() (err error) { *reply, err = job.Instruction.ReencodeReply(*reply); return err }
		if err := p.encoded(reencode); err != nil {
			return nil, err
		}
	}

	return replies, nil
}

// encoded does something to messages if they pass through their encoded form.
func (p *pool) encoded(do func() error) error {
	if !p.settings.Encode {
		return nil
	}
	defer since(&p.cost.messages, time.Now())
	return do()
}

// Accept keeps the new states of clients whose upload was merged, and drops those of the others.
func (p *pool) Accept(round int, clients []int) error { return p.store.Accept(round, clients) }

// Rejected keeps the refusal for the report.
func (p *pool) Rejected(_, client int, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = append(p.refused, message.Refusal{Client: client, Reason: why.Error()})
}

// Report returns the refusals.
func (p *pool) Report() (out message.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out.Refused, p.refused = p.refused, nil
	return out
}

// clientsLayer is the name of a pool in a checkpoint.
const clientsLayer = "clients"

// Save returns where the states of clients lie, and the optimizer that they share.
func (p *pool) Save() (out message.Saved, err error) {
	err = out.Put(clientsLayer, p.store.Locations(), p.worker.OptimizerState())
	return out, err
}

// Load restores the state of Save.
func (p *pool) Load(from message.Saved) error {
	var places map[int]state.Location
	optimizer, err := from.Get(clientsLayer, &places)
	if err != nil {
		return err
	}
	p.worker.RestoreOptimizer(optimizer)
	return p.store.Load(places)
}
