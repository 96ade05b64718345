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
	"promptfed/runtime/tensor"
)

// pool is a Cohort of simulated clients in this process: up to Settings.Workers of them run at a time.
type pool struct {
	settings Settings
	members  []message.Participant
	clients  []*spec.Client
	worker   *client.Worker
	turns    turns
	store    *state.Store
	cost     *overhead

	mu      sync.Mutex
	refused []message.Refusal // since the last report
}

func (p *pool) Participants() []message.Participant { return p.members }
func (p *pool) Traits() message.Traits              { return message.Traits{} }

// Run sends an instruction to the named clients; an instruction to validate, to those that have validation data.
func (p *pool) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if o.Kind == message.Validate { // an executor need not be asked for nothing
		o.Clients = slices.DeleteFunc(slices.Clone(o.Clients), func(id int) bool {
			val := p.clients[id].Val
			return val == nil || val.Len() == 0
		})
	}
	clients := make([]*spec.Client, len(o.Clients))
	for i, id := range o.Clients {
		clients[i] = p.clients[id]
	}
	groups, err := p.turns.groups(ctx, o, clients)
	if err != nil {
		return nil, err
	}

	work := make(chan []int, len(groups))
	for _, group := range groups {
		work <- group
	}
	close(work)
	replies := make([]message.Reply, len(o.Clients))
	eg, ctx := errgroup.WithContext(ctx)
	workers := p.settings.Workers
	if o.Kind == message.Train && p.worker.Experiment.Training.Shared { // one optimizer, for one client at a time
		workers = 1
	}
	for range min(workers, len(groups)) { // a goroutine for each turn would grow a stack for each
		eg.Go(func() error {
			for group := range work {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := p.runGroup(ctx, o, group, replies); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return replies, eg.Wait()
}

// runGroup runs the turns of a group of clients, by their index in the instruction, and sets their replies.
func (p *pool) runGroup(ctx context.Context, o message.Instruction, group []int, replies []message.Reply) error {
	jobs := make([]client.Job, len(group))
	for k, i := range group {
		j := &jobs[k]
		j.Client, j.Instruction = p.clients[o.Clients[i]], o.ForClient(o.Clients[i])
		replies[i].Down = message.EncodedSize(j.Instruction.Tensors())
		if p.settings.Encode {
			began := time.Now()
			var err error
			if j.Instruction, err = message.Reencode(j.Instruction); err != nil {
				return err
			}
			since(&p.cost.messages, began)
		}
	}
	answers, next, err := p.turns.run(ctx, jobs)
	if err != nil {
		return err
	}
	for k, i := range group {
		down := replies[i].Down
		if replies[i], err = p.received(jobs[k].Instruction, answers[k], next[k]); err != nil {
			return err
		}
		replies[i].Down = down
		p.settings.OnTurn(o, o.Clients[i])
	}
	return nil
}

// received returns a reply as the server gets it. next is the client's next state, nil for an unchanged one.
func (p *pool) received(o message.Instruction, r message.Reply, next *message.ClientState) (message.Reply, error) {
	if next != nil {
		began := time.Now()
		if err := p.store.Stage(o.Round, r.Client, *next); err != nil {
			return r, err
		}
		since(&p.cost.disk, began)
	}
	m := r.Tensors()
	if !o.Kind.Tests() {
		r.Up = r.UploadSize()
	}
	if !p.settings.Encode || len(m) == 0 {
		return r, nil
	}
	defer since(&p.cost.messages, time.Now())
	m, err := message.RoundTrip(m)
	if err != nil {
		return r, err
	}
	return o.WithReplyTensors(r, m)
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

// turns runs the turns of clients.
type turns interface {
	// groups divides the clients of an instruction, by their index, into groups whose turns are computed together.
	groups(ctx context.Context, o message.Instruction, clients []*spec.Client) ([][]int, error)
	// run runs the turns of a group. A state is nil if it is unchanged.
	run(ctx context.Context, jobs []client.Job) ([]message.Reply, []*message.ClientState, error)
}

// here runs turns in this process.
type here struct {
	worker  *client.Worker
	store   *state.Store
	workers int
	cost    *overhead
}

// groups also computes the prefixes of tests that can be computed together.
func (h here) groups(ctx context.Context, o message.Instruction, clients []*spec.Client) ([][]int, error) {
	if o.Kind == message.Train {
		return h.worker.Groups(clients, o.Total)
	}
	return alone(clients), h.worker.ComputeAhead(ctx, o, clients, h.store.Get, h.workers)
}

func (h here) run(ctx context.Context, jobs []client.Job) ([]message.Reply, []*message.ClientState, error) {
	for k := range jobs {
		began := time.Now()
		var err error
		jobs[k].State, err = h.store.Get(jobs[k].Client.ID)
		since(&h.cost.disk, began)
		if err != nil {
			return nil, nil, err
		}
	}
	if jobs[0].Instruction.Kind == message.Train {
		return h.worker.TrainTogether(ctx, jobs)
	}
	r, next, err := h.worker.Execute(ctx, jobs[0].Client, jobs[0].Instruction, jobs[0].State)
	return []message.Reply{r}, []*message.ClientState{next}, err
}

// executed lets an executor run turns, each alone.
type executed struct {
	worker *client.Worker
	store  *state.Store
	by     client.RemoteExecutor
}

func (x executed) groups(_ context.Context, _ message.Instruction, clients []*spec.Client) ([][]int, error) {
	return alone(clients), nil
}

func (x executed) run(ctx context.Context, jobs []client.Job) ([]message.Reply, []*message.ClientState, error) {
	j := jobs[0]
	r, next, err := x.worker.ExecuteRemotely(ctx, x.by, j.Client, j.Instruction, func() (message.ClientState, error) {
		return x.store.Get(j.Client.ID)
	})
	return []message.Reply{r}, []*message.ClientState{next}, err
}

// alone returns groups of one client.
func alone(clients []*spec.Client) [][]int {
	return slices.Collect(slices.Chunk(tensor.Indices(len(clients)), 1))
}
