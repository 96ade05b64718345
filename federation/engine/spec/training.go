package spec

import (
	"slices"

	"promptfed/runtime/optim"
)

// Training says how clients train.
type Training struct {
	Epochs    int
	Batch     int
	DropLast  bool // leave out a last batch that is not full, when there is a full one
	Optim     optim.Config
	Schedule  optim.Schedule // over rounds
	Overrides []Overrides    // by client, repeated; nil for all alike
	// Shared passes one optimizer with its state from client to client, and from round to round: momentum leaks between
	// clients. They train one after the other, by number, in one process.
	Shared bool
	// FineTune has the personal evaluation test a copy of each client that trained the server's parameters for so many
	// epochs by itself; 0 has it test what the client last trained. Nothing of it is remembered.
	FineTune int
	// Memory bounds, in bytes, what a step with text prompts for each image computes at a time; 0 is 4 GiB.
	Memory int
}

// Batches cuts an order of rows.
func (t Training) Batches(order []int) [][]int {
	var out [][]int
	for rows := range slices.Chunk(order, t.Batch) {
		if t.DropLast && len(rows) < t.Batch && len(out) > 0 {
			break
		}
		out = append(out, rows)
	}
	return out
}

// Overrides is what one client does in place of what all do; 0 leaves it at that.
type Overrides struct {
	Epochs int // passes over its data in a round
	Batch  int // examples of one step
	Steps  int // of a round at most, 0 for no bound
}

// Of is the training of a client by its entry of Overrides, which are repeated when there are more clients.
func (t Training) Of(client int) (Training, int) {
	if len(t.Overrides) == 0 {
		return t, 0
	}
	p := t.Overrides[client%len(t.Overrides)]
	if p.Epochs > 0 {
		t.Epochs = p.Epochs
	}
	if p.Batch > 0 {
		t.Batch = p.Batch
	}
	return t, p.Steps
}

// StepsOf is how many steps a client with n examples takes in a round, where each is taken once in an epoch.
func (t Training) StepsOf(client, n int) int {
	t, most := t.Of(client)
	steps := n / t.Batch
	if n%t.Batch > 0 && (steps == 0 || !t.DropLast) {
		steps++
	}
	if steps *= t.Epochs; most > 0 {
		steps = min(steps, most)
	}
	return steps
}

// Tuning is the training of one client for FineTune epochs.
func (t Training) Tuning(client int) Training {
	p, _ := t.Of(client)
	t.Overrides = []Overrides{{Epochs: t.FineTune, Batch: p.Batch}}
	return t
}

// Steps is the training of one client for so many steps at the learning rate before the schedule.
func (t Training) Steps(client, n int) Training {
	p := Overrides{}
	if len(t.Overrides) > 0 {
		p = t.Overrides[client%len(t.Overrides)]
	}
	p.Epochs, p.Steps = n, n // an epoch has a step or more
	t.Overrides, t.Schedule = []Overrides{p}, optim.Schedule{}
	return t
}
