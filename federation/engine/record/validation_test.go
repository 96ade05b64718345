package record

import (
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// validated returns records of rounds 0, 1, ... with these validation accuracies. -1 stands for a round without a test;
// the test accuracy is 1 minus the validation accuracy.
func validated(accuracies ...float64) []Record {
	var out []Record
	for i, v := range accuracies {
		r := Record{Round: i}
		if v >= 0 {
			e := &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: 1 - v, metrics.Worst: v / 2}}
			r.Tested, r.Evaluations, r.Global = true, Evaluations{Global: e}, accuracy(e)
			r.Validation = &Validation{Evaluations: Evaluations{
				Global: &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: v}}}}
		}
		out = append(out, r)
	}
	return out
}

// TestBestVal: among equal validation accuracies the earlier round wins, whatever the test accuracy, and rounds without
// a test do not count.
func TestBestVal(t *testing.T) {
	for _, c := range []struct {
		accuracies []float64
		want       int
	}{{[]float64{.2, .5, -1, .5, .4}, 1}, {[]float64{-1, -1}, -1}, {nil, -1}, {[]float64{-1, .1}, 1},
		{[]float64{0, 0}, 0}, {[]float64{.48, math.Nextafter(.48, 1)}, 0}} {
		if got := BestVal(validated(c.accuracies...), method.GlobalView); got != c.want {
			t.Errorf("%v: %d, want %d", c.accuracies, got, c.want)
		}
	}
	if got := BestVal(validated(.5), method.PersonalView); got != -1 {
		t.Errorf("a round without the evaluation is the best by it: %d", got)
	}
}

// TestPatience: patience counts the tested rounds after the best one. The message numbers rounds from 1.
func TestPatience(t *testing.T) {
	for _, c := range []struct {
		patience int
		stops    bool
		of       []float64
	}{{2, false, []float64{.5, .4}}, {2, true, []float64{.5, .4, .5}}, {2, false, []float64{.5, -1, -1, .4}},
		{2, true, []float64{.5, -1, .4, -1, .3}},
		{0, false, []float64{.5, .1, .1, .1, .1}}, {1, false, []float64{-1, -1}},
		{1, true, []float64{.48, math.Nextafter(.48, 1)}}, {2, false, []float64{.5, .4, .6}}} {
		got := TestPlan{Patience: c.patience}.Stop(validated(c.of...), method.GlobalView)
		if (got != "") != c.stops || c.stops && !strings.Contains(got, "after round 1") {
			t.Errorf("patience %d after %v: %q", c.patience, c.of, got)
		}
	}
}

// TestChoose: the summary names the round with the best validation accuracy, and has its metrics if selected.
func TestChoose(t *testing.T) {
	records := validated(.3, .8, .5)
	for _, best := range []bool{false, true} {
		s := Summarise(records, method.GlobalView)
		s.Choose(records, method.GlobalView, TestPlan{BestVal: best})
		if a := s.AtBestVal; a == nil || a.Round != 1 || a.Validation != .8 || a.Accuracy != *records[1].Global ||
			a.Global != records[1].Global {
			t.Errorf("%+v", a)
		}
		want, round, worst := "last", 2, .25
		if best {
			want, round, worst = "best-val", 1, .4
		}
		if s.Select != want || s.Selected != round || s.Evaluation.Values[metrics.Worst] != worst ||
			*s.Global != *records[round].Global {
			t.Errorf("%s: round %d, worst %g, global %g", s.Select, s.Selected, s.Evaluation.Values[metrics.Worst],
				*s.Global)
		}
		if s.Last != .5 || s.Best != .7 || s.BestRound != 0 {
			t.Errorf("last %g and best %g of round %d have another meaning now", s.Last, s.Best, s.BestRound)
		}
	}
}
