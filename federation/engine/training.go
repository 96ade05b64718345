package engine

import (
	"promptfed/runtime/optim"
	"slices"
)

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

// Pace is what one client does in place of what all do; 0 leaves it at that.
type Pace struct {
	Epochs int // passes over its data in a round
	Batch  int // examples of one step
	Steps  int // of a round at most, 0 for no bound
}

// of is the training of a client whose pace stands in Each, which is repeated when there are more clients.
func (t Training) of(client int) (Training, int) {
	if len(t.Each) == 0 {
		return t, 0
	}
	p := t.Each[client%len(t.Each)]
	if p.Epochs > 0 {
		t.Epochs = p.Epochs
	}
	if p.Batch > 0 {
		t.Batch = p.Batch
	}
	return t, p.Steps
}

// steps is the training of one client for so many steps at the learning rate before the schedule.
func (t Training) steps(client, n int) Training {
	p := Pace{}
	if len(t.Each) > 0 {
		p = t.Each[client%len(t.Each)]
	}
	p.Epochs, p.Steps = n, n // an epoch has a step or more
	t.Each, t.Schedule = []Pace{p}, optim.Schedule{}
	return t
}
