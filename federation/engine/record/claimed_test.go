package record

import (
	"testing"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// claims returns records of rounds 0, 1, ... with the validation accuracies of clients; below 0 for one that did not
// answer.
func claims(rounds ...[]float64) []Record {
	var out []Record
	for i, accuracies := range rounds {
		v, e := &Validation{Clients: []int{}}, &metrics.Evaluation{}
		for client, accuracy := range accuracies {
			if accuracy >= 0 {
				v.Clients, e.PerClient = append(v.Clients, client), append(e.PerClient, accuracy)
			}
		}
		mean := metrics.Mean(e.PerClient)
		e.Values, v.Global = map[string]float64{metrics.Accuracy: mean}, e
		out = append(out, Record{Round: i, Tested: true, Validation: v})
	}
	return out
}

// One liar of four neither ends a run in which the others improve, nor keeps one going in which they do not. Without
// Claimed, as in one process, it does both.
func TestOneLiarDecidesNoPatience(t *testing.T) {
	improving, worse := [][]float64{}, [][]float64{}
	for i := range 15 {
		honest, lie := .2+.02*float64(i), 1-float64(min(i, 1)) // the lie is 1, then 0
		improving = append(improving, []float64{honest, lie, honest + .3, honest + .1})
		honest, lie = .5-.01*float64(i), float64(i)/14
		worse = append(worse, []float64{honest, honest + .2, lie, honest + .1})
	}
	for _, claimed := range []bool{false, true} {
		plan := TestPlan{Patience: 3, Claimed: claimed}
		for rounds := 1; rounds <= 15; rounds++ {
			late := rounds >= 4
			if got := plan.Stop(claims(improving[:rounds]...), method.GlobalView) != ""; got != (!claimed && late) {
				t.Errorf("claimed %v: after %d rounds in which honest ones improve it stops: %v", claimed, rounds, got)
			}
			if got := plan.Stop(claims(worse[:rounds]...), method.GlobalView) != ""; got != (claimed && late) {
				t.Errorf("claimed %v: after %d rounds in which they do not it stops: %v", claimed, rounds, got)
			}
		}
	}
}

// The gain is the mean without the highest and lowest fifth, over clients of both rounds. Where these are less than
// three, the means of the rounds decide.
func TestGained(t *testing.T) {
	for _, c := range []struct {
		best, v []float64
		want    bool
	}{
		{[]float64{.5, .5, .5}, []float64{.6, .6, 0}, true},
		{[]float64{.5, .5, .5}, []float64{.4, .5, 1}, false}, // the middle one gains nothing
		{[]float64{.5, .5, .5, .5, .5, .5}, []float64{1, 1, .5, .4, .4, .4}, false},
		{[]float64{.5, .5, .5, .5, .5, .5}, []float64{0, 0, .6, .6, .6, .6}, true},
		{[]float64{.5, .5, .5, .5, -1}, []float64{.4, .4, .4, -1, 1}, false}, // by means .525 and .5
		{[]float64{.5, .5}, []float64{.3, .8}, true}, {[]float64{.5, .5, -1}, []float64{-1, .3, .8}, true},
	} {
		r := claims(c.best, c.v)
		if got := gained(r[1].Validation, r[0].Validation, method.GlobalView); got != c.want {
			t.Errorf("from %v to %v: %v", c.best, c.v, got)
		}
	}
	r := claims([]float64{.5, .5, .5}, []float64{.4, .4, .9}) // all clients answered, and accuracies are a secret
	r[0].Validation.Clients, r[1].Validation.Clients = nil, nil
	if gained(r[1].Validation, r[0].Validation, method.GlobalView) {
		t.Error("one of three clients that all answered decides")
	}
	r[1].Validation.Global.PerClient = nil
	if !gained(r[1].Validation, r[0].Validation, method.GlobalView) {
		t.Error("without accuracies by client their mean counts")
	}
}
