package spec

import (
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Plan holds the decisions of the server: the clients that train in each round, and the tests.
type Plan struct {
	Rounds        int
	Clients       int
	Participation float64 // share of clients that train in a round
	Poisson       bool    // clients are drawn independently with probability Participation; maybe none
	TestEvery     int     // rounds between tests; the last round is always tested
	// the evaluation that a round's headline is of: global, personal, or the method's own (also when empty)
	View     string
	Seed     uint64
	Trainers []int // who may train and answer statistics; empty for all
	// who never trains and is tested after some steps of its own only, sorted; none of Trainers
	New       []int
	Attackers []int               // of a simulated attack, sorted, for the records
	Infos     []method.ClientInfo // of each client
}

// Sample draws the clients that train in a round, sorted. With Poisson each is drawn by itself, and there may be none.
func (p Plan) Sample(random *rand.Rand) []int {
	may, sampling := p.TrainingClients(), p.Sampling()
	pick := []int{}
	if sampling.Poisson {
		for _, id := range may {
			if random.Float64()*float64(sampling.Clients) < sampling.Size {
				pick = append(pick, id)
			}
		}
		return pick
	}

	pick = convert.Slice(random.Perm(len(may))[:int(sampling.Size)], func(i int) int { return may[i] })
	slices.Sort(pick)
	return pick
}

// Sampling describes the draw of Sample, for the accounting of privacy. Size is the number of clients of a round, their
// mean with Poisson. Otherwise it is whole and at least 1.
func (p Plan) Sampling() method.Sampling {
	sampling := method.Sampling{Clients: p.Clients, Poisson: p.Poisson}
	if len(p.Trainers) > 0 {
		sampling.Clients = len(p.Trainers)
	}

	sampling.Size = float64(sampling.Clients)
	if p.Participation > 0 && p.Participation < 1 {
		sampling.Size *= p.Participation
		if !p.Poisson {
			sampling.Size = math.Max(1, math.Floor(sampling.Size+0.5))
		}
	}

	return sampling
}

// TrainingClients lists the clients that may train: Trainers, or all.
func (p Plan) TrainingClients() []int {
	if len(p.Trainers) > 0 {
		return p.Trainers
	}
	return tensor.Indices(p.Clients)
}

// Participants lists the clients that take part: all but those that never train.
func (p Plan) Participants() []int {
	return slices.DeleteFunc(tensor.Indices(p.Clients), func(id int) bool {
		_, never := slices.BinarySearch(p.New, id)
		return never
	})
}

// Training holds the settings of the local steps, which are the same for all clients except for Overrides.
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
	// FineTune lets the personal evaluation test a copy of each client that trained the server's parameters for so many
	// epochs by itself; with 0 it tests what the client last trained. The copies are not kept.
	FineTune int
	// Memory bounds, in bytes, how many images and classes a step computes at a time; 0 is 4 GiB.
	Memory int
}

// Batches divides rows, in their order, into batches.
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

// LargestBatch returns the largest batch of any client.
func (t Training) LargestBatch() int {
	most := t.Batch
	for _, o := range t.Overrides {
		most = max(most, o.Batch)
	}
	return most
}

// Overrides are the settings of one client that differ from those of all; 0 for no difference.
type Overrides struct {
	Epochs int // passes over its data in a round
	Batch  int // examples of one step
	Steps  int // of a round at most, 0 for no bound
}

// Of returns the training of a client by its entry of Overrides, which are repeated if there are more clients.
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

// StepsOf returns how many steps a client with n examples takes in a round, if an epoch has each example once.
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

// Tuning returns the training of one client for FineTune epochs.
func (t Training) Tuning(client int) Training {
	p, _ := t.Of(client)
	t.Overrides = []Overrides{{Epochs: t.FineTune, Batch: p.Batch}}
	return t
}

// Steps returns the training of one client for so many steps at the learning rate before the schedule.
func (t Training) Steps(client, n int) Training {
	p := Overrides{}
	if len(t.Overrides) > 0 {
		p = t.Overrides[client%len(t.Overrides)]
	}
	p.Epochs, p.Steps = n, n // an epoch has a step or more
	t.Overrides, t.Schedule = []Overrides{p}, optim.Schedule{}
	return t
}
