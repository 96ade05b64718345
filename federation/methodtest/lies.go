package methodtest

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// exaggeration is how many times the norm of an honest client's numbers a lie has: below message.MaxNormRatio, beyond
// which a server refuses it.
const exaggeration = message.MaxNormRatio - 1

// extremes are the directions of a liar's numbers.
var extremes = []struct {
	name string
	of   func(i, n int) float64 // of element i of n
}{
	{"equal", func(int, int) float64 { return 1 }},
	{"all negative", func(int, int) float64 { return -1 }},
	{"alternating", func(i, _ int) float64 { return float64(1 - 2*(i%2)) }},
	{"one element", func(i, _ int) float64 { return float64(max(0, 1-i)) }},
	{"the last element", func(i, n int) float64 { return -float64(max(0, i+2-n)) }},
	{"zeros", func(int, int) float64 { return 0 }},
	{"uneven", func(i, _ int) float64 { return math.Exp(-float64(i)) }},
}

// liar is a layer in which all clients are on other machines and one lies: in each round in another direction.
type liar struct {
	message.Cohort
	method method.Method
	tasks  []message.Participant
	client int
	named  map[int][]string // reasons for which a client was refused
	honest bool             // the client does not lie
	moved  float64          // norm of the largest update in round 0, as the server gets it
	first  tensor.Map       // the shared parameters after round 0
}

// Traits returns that replies are claims of clients on other machines.
func (l *liar) Traits() message.Traits {
	t := l.Cohort.Traits()
	t.Claimed = true
	return t
}

func (l *liar) Rejected(round, client int, why error) {
	l.named[client] = append(l.named[client], why.Error())
	l.Cohort.Rejected(round, client, why)
}

func (l *liar) Run(ctx context.Context, instruction message.Instruction) ([]message.Reply, error) {
	if instruction.Kind == message.Train && instruction.Round == 1 {
		l.first = instruction.Shared.Clone()
	}

	replies, err := l.Cohort.Run(ctx, instruction)
	if err != nil || instruction.Kind.Tests() || instruction.Labels() {
		return replies, err
	}

	for i := range replies {
		r := &replies[i]
		if r.Client == l.client && !l.honest {
			Lie(l.method, l.tasks[r.Client].Task, instruction, r)
		}
		if instruction.Kind == message.Train && instruction.Round == 0 && instruction.Codec == nil {
			l.moved = max(l.moved, message.UpdateNorm(instruction.Shared, r.Upload.Shared))
		}
	}

	return replies, nil
}

// Lie replaces the numbers of a reply by others that the instruction allows, in each round in another direction.
func Lie(m method.Method, task method.ClientSpec, instruction message.Instruction, r *message.Reply) {
	extreme, upload := extremes[instruction.Round%len(extremes)], &r.Upload
	r.Stats.Loss = message.MaxLoss * float64(1-2*(instruction.Round%2))
	declared, _ := instruction.Extras(m, task)
	counts := func(name string) bool {
		return slices.ContainsFunc(declared, func(d method.Extra) bool { return d.Name == name && d.Counts })
	}
	extra := tensor.Map{}

	for name, t := range upload.Extra {
		norm := exaggeration * t.Norm()
		if counts(name) { // all examples are of one class
			norm, t = float64(upload.N), tensor.New(t.Shape...)
			if t.Len() > 0 {
				t.Data[instruction.Round%t.Len()] = float32(norm)
			}
			extra[name] = t
			continue
		}
		extra[name] = scaled(extreme.of, t.Shape, norm)
	}

	upload.Extra = extra
	if instruction.Codec != nil || instruction.Kind != message.Train {
		return
	}

	shared := maps.Clone(upload.Shared)
	for name, t := range upload.Shared {
		move := t.Clone()
		move.Axpy(-1, instruction.Shared[name])
		shared[name] = scaled(extreme.of, t.Shape, exaggeration*move.Norm())
		shared[name].Axpy(1, instruction.Shared[name])
	}

	upload.Shared = shared
}

// scaled returns a tensor of a direction with a norm.
func scaled(element func(i, n int) float64, shape []int, norm float64) *tensor.Tensor {
	t := tensor.New(shape...)
	for i := range t.Data {
		t.Data[i] = float32(element(i, t.Len()))
	}

	out := tensor.New(shape...)
	if n := t.Norm(); n > 0 {
		out.Axpy(norm/n, t)
	}

	return out
}

// lies: whatever one of five clients says within the forms and norms that a server accepts, the run ends normally, each
// round counts all others, or says why it counts nobody, and what the server keeps is finite. In the first round the
// shared parameters are no further from those without the lie than the case's Reach.
func (c Case) lies(t *testing.T) {
	run := func(rounds int, honest bool) (*liar, *engine.Result) {
		experiment := c.experiment(t)
		experiment.Clients = clients(c.Alike, 9, 5, 6, 3, 7)
		experiment.Plan.Rounds, experiment.Plan.Participation, experiment.Plan.TestEvery = rounds, 1, rounds
		l := &liar{method: experiment.Method, client: 1, named: map[int][]string{}, honest: honest}
		r, err := engine.Run(t.Context(), experiment, engine.Settings{Workers: 2,
			Wrap: func(in message.Cohort) message.Cohort {
				l.Cohort, l.tasks = in, in.Participants()
				return l
			}})
		if err != nil {
			t.Fatalf("one client ended the run: %v", err)
		}
		return l, r
	}

	lying, result := run(len(extremes), false)
	if reach := cmp.Or(c.Reach, 1); lying.moved > 0 {
		h, _ := run(2, true)
		if d := message.UpdateNorm(h.first, lying.first); !(d <= reach*lying.moved) {
			t.Errorf("one upload moves the shared parameters by %.2f norms of the longest upload, more than %g",
				d/lying.moved, reach)
		}
	}

	for _, rec := range result.Records {
		honest := slices.DeleteFunc(slices.Clone(rec.Clients), func(k int) bool { return k == lying.client })
		if !slices.Equal(honest, []int{0, 2, 3, 4}) && len(rec.Warnings) == 0 {
			t.Errorf("%s: round %d counts clients %v: %v", extremes[rec.Round].name, rec.Round, rec.Clients,
				lying.named)
		}
	}

	for client := range lying.named {
		if client != lying.client {
			t.Errorf("client %d is refused for what client %d says: %v", client, lying.client, lying.named)
		}
	}

	if err := message.CheckFinite("", result.Prompts); err != nil {
		t.Error(err)
	}
}
