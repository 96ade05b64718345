package spec_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// By hand: 0.5 of 5 clients are 2.5, rounded to 3; 0.1 of 3 are 0.3, at least 1. Poisson sampling does not round.
func TestSampling(t *testing.T) {
	for _, c := range []struct {
		plan spec.Plan
		want string
	}{
		{spec.Plan{Clients: 4}, "{4 4 false}"},
		{spec.Plan{Clients: 4, Participation: 1}, "{4 4 false}"},
		{spec.Plan{Clients: 5, Participation: .5}, "{5 3 false}"},
		{spec.Plan{Clients: 3, Participation: .1}, "{3 1 false}"},
		{spec.Plan{Clients: 9, Trainers: []int{2, 4, 7, 8}, Participation: .4}, "{4 2 false}"},
		{spec.Plan{Clients: 5, Participation: .5, Poisson: true}, "{5 2.5 true}"},
	} {
		s := c.plan.Sampling()
		if got := fmt.Sprint(struct {
			Clients int
			Size    float64
			Poisson bool
		}{s.Clients, s.Size, s.Poisson}); got != c.want {
			t.Errorf("%+v: %s, want %s", c.plan, got, c.want)
		}
	}
}

// A round's clients are distinct, sorted, of those that may train, and as many as the share says. With Poisson sampling
// each is drawn with that probability: of 4000 draws with 1/4 there are 1000 on average, with a deviation of 27.
func TestSample(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	p := spec.Plan{Clients: 9, Trainers: []int{2, 4, 7, 8}, Participation: .5}
	seen := map[int]int{}
	for range 100 {
		got := p.Sample(r)
		if len(got) != 2 || !slices.IsSorted(got) || got[0] == got[1] {
			t.Fatal(got)
		}
		for _, id := range got {
			seen[id]++
		}
	}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, p.Trainers) {
		t.Errorf("%v", seen)
	}
	p, n := spec.Plan{Clients: 4, Participation: .25, Poisson: true}, 0
	for range 1000 {
		got := p.Sample(r)
		n += len(got)
		if !slices.IsSorted(got) || got == nil {
			t.Fatal(got)
		}
	}
	if n < 860 || n > 1140 {
		t.Errorf("%d of 4000", n)
	}
	if got := (spec.Plan{Clients: 4, New: []int{1, 3}}).Participants(); !slices.Equal(got, []int{0, 2}) {
		t.Error(got)
	}
	if got := (spec.Plan{Clients: 3}).TrainingClients(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Error(got)
	}
}

// By hand: 9 examples in batches of 4 are 4, 4 and 1, and the last one may be left out; a first one stays
// however small.
func TestStepsOfAClient(t *testing.T) {
	for _, c := range []struct {
		training spec.Training
		n        int
		batches  string
		steps    int
	}{
		{spec.Training{Epochs: 1, Batch: 4}, 9, "[[0 1 2 3] [4 5 6 7] [8]]", 3},
		{spec.Training{Epochs: 2, Batch: 4, DropLast: true}, 9, "[[0 1 2 3] [4 5 6 7]]", 4},
		{spec.Training{Epochs: 1, Batch: 4, DropLast: true}, 8, "[[0 1 2 3] [4 5 6 7]]", 2},
		{spec.Training{Epochs: 3, Batch: 4, DropLast: true}, 2, "[[0 1]]", 3},
		{spec.Training{Epochs: 1, Batch: 4}, 0, "[]", 0},
	} {
		if got := fmt.Sprint(c.training.Batches(tensor.Indices(c.n))); got != c.batches ||
			c.training.StepsOf(5, c.n) != c.steps {
			t.Errorf("%+v of %d: %s, %d steps", c.training, c.n, got, c.training.StepsOf(5, c.n))
		}
	}
	all := spec.Training{Epochs: 2, Batch: 4, FineTune: 7, Optim: optim.Config{LR: 1},
		Schedule:  optim.Schedule{Kind: "cosine"},
		Overrides: []spec.Overrides{{}, {Epochs: 3, Steps: 5}, {Batch: 2}}}
	for client, want := range []string{"2 4 0 6", "3 4 5 5", "2 2 0 10", "2 4 0 6", "3 4 5 5"} {
		p, most := all.Of(client)
		if got := fmt.Sprint(p.Epochs, p.Batch, most, all.StepsOf(client, 9)); got != want {
			t.Errorf("client %d: %s, want %s", client, got, want)
		}
	}
	if p, _ := all.Tuning(2).Of(0); p.Epochs != 7 || p.Batch != 2 || all.Overrides[0].Epochs != 0 {
		t.Errorf("%+v", p)
	}
	for client, want := range []string{"4 [{6 0 6}]", "4 [{6 0 6}]", "4 [{6 2 6}]"} {
		if p := all.Steps(client, 6); fmt.Sprint(p.Batch, p.Overrides) != want || p.Schedule.Kind != "" ||
			p.Optim.LR != 1 {
			t.Errorf("client %d: %+v, want %s", client, p, want)
		}
	}
	bare := spec.Training{Epochs: 2, Batch: 4}
	if p := bare.Steps(3, 6); fmt.Sprint(p.Overrides) != "[{6 0 6}]" || p.StepsOf(3, 9) != 6 {
		t.Errorf("%+v", p)
	}
}
