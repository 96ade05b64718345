package metrics

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// TestConfusionByHand: a client has two examples of class 0, predicted as 0 and 1, and one of class 2, predicted as 0.
// Another one has one example of class 0, predicted as 0. The third one withholds its matrix. Together two of three
// examples of class 0 are correct and none of one of class 2.
func TestConfusionByHand(t *testing.T) {
	first := Compute(Examples{Scores: tensor.Of([]float32{1, 0, 0, 0, 1, 0, 1, 0, 0}, 3, 3), Labels: []int64{0, 0, 2}},
		true)
	second := Compute(Examples{Scores: tensor.Of([]float32{1, 0, 0}, 1, 3), Labels: []int64{0}}, true)
	third := Compute(Examples{Scores: tensor.Of([]float32{1, 0, 0}, 1, 3), Labels: []int64{1}}, false)
	b, err := json.Marshal(Confusion([]Statistics{first, second, third}, 3))
	if err != nil || string(b) != `{"counts":[[0,0,2],[0,1,1],[2,0,1]],"per_class":[0.6666666666666666,null,0]}` {
		t.Errorf("%s, %v", b, err)
	}
	if m := Confusion([]Statistics{third}, 3); m != nil || third.HasConfusion() || !first.HasConfusion() {
		t.Errorf("of a client without one: %+v", m)
	}
}

// Four examples, of them two correct, have exactly these statistics and no others.
func TestChecksOfStatistics(t *testing.T) {
	sum := func(a, b float64) float64 { return a + b } // rounded as the checks round
	bin := func(m int, b ...float64) []float64 {
		out := make([]float64, 3*bins)
		copy(out[3*m:], b)
		return out
	}
	const order, counts = "its rows are not in the order of classes, or one is there twice",
		"its counts do not match the examples and the correct ones"
	for _, c := range []struct {
		name      string
		classes   int
		correct   float64
		v         []float64
		complains string
	}{
		{"confusion", 3, 2, []float64{0, 0, 1, 0, 2, 1, 2, 0, 1, 2, 2, 1}, ""},
		{"confusion", 3, 4, []float64{0, 0, 4}, ""},
		{"confusion", 2, 2, []float64{0, 0, 2, 2, 0, 2}, "it counts 2 examples of class 2 predicted as class 0"},
		{"confusion", 2, 2, []float64{0, 0, 2, 0, 2, 2}, "it counts 2 examples of class 0 predicted as class 2"},
		{"confusion", 0, 2, []float64{0, 0, 2, maxClass, 0, 2}, ""},
		{"confusion", 0, 2, []float64{0, 0, 2, maxClass + 1, 0, 2}, "of class 2.147483649e+09 predicted"},
		{"confusion", 0, 2, []float64{-1, 0, 2, 0, 0, 2}, "of class -1 predicted as class 0"},
		{"confusion", 3, 2, []float64{0, 0, 2, 0, 1, 0, 2, 0, 2},
			"it counts 0 examples of class 0 predicted as class 1"},
		{"confusion", 3, 2, []float64{0, 0, 2, 0, 1, 5}, "it counts 5 examples"},
		{"confusion", 3, 2, []float64{0, 0, 2, 0, 1, 1.5}, "it counts 1.5 examples"},
		{"confusion", 3, 2, []float64{0, 1, 2, 0, 0, 2}, order},
		{"confusion", 3, 2, []float64{0, 0, 1, 0, 0, 1, 0, 1, 2}, order},
		{"confusion", 3, 2, []float64{0, 0, 1, 2, 2, 1, 1, 0, 2}, order},
		{"confusion", 3, 2, []float64{0, 0, 2, 0, 1, 1}, counts},
		{"confusion", 3, 2, []float64{0, 0, 2, 0, 1, 3}, counts},
		{"confusion", 3, 2, []float64{0, 0, 1, 0, 1, 3}, counts},
		{"confusion", 3, 2, []float64{0, 0, 3, 0, 1, 1}, counts},
		{"correct", 3, 0, []float64{4}, ""},
		{"correct", 3, 0, []float64{5}, "5 is not a whole number from 0 to 4"},
		{"correct", 3, 0, []float64{1.5}, "1.5 is not a whole number from 0 to 4"},
		{"own_correct", 3, 2, []float64{4}, ""},
		{"own_correct", 3, 2, []float64{0}, ""},
		{"own_correct", 3, 2, []float64{5}, "5 is not a whole number from 0 to 4"},
		{"own_correct", 3, 2, []float64{-1}, "-1 is not a whole number from 0 to 4"},
		// 2 wrong examples have 1/2 to 2 each and the 2 correct ones up to 1, so the sum is from 1 to 6.
		{"brier", 3, 2, []float64{sum(1, -1e-6)}, ""},
		{"brier", 3, 2, []float64{sum(1, -2e-6)}, "is not between 1 and 6, with 2 correct ones"},
		{"brier", 3, 2, []float64{sum(6, 1e-6)}, ""},
		{"brier", 3, 2, []float64{sum(6, 2e-6)}, "is not between 1 and 6, with 2 correct ones"},
		{"f1", 3, 4, []float64{1}, ""},
		{"f1", 3, 0, []float64{0}, ""},
		{"f1", 3, 2, []float64{0}, "macro-F1 must lie between 0 and 1, and be 0 only where no prediction is correct"},
		{"f1", 3, 0, []float64{.5}, "macro-F1 must lie between 0 and 1"},
		{"f1", 3, 2, []float64{1.1}, "macro-F1 must lie between 0 and 1"},
		{"f1", 3, 2, []float64{-.1}, "macro-F1 must lie between 0 and 1"},
		// The confidences of four examples of bin 0 are from 0 to 1/15, those of bin 3 from 3/15 to 4/15.
		{"confidence_bins", 3, 2, bin(0, 4, 2, -1e-6), ""},
		{"confidence_bins", 3, 4, bin(0, 4, 4, .1), ""},
		{"confidence_bins", 3, 2, bin(0, 4, 2, -2e-6),
			"bin 0 has 4 examples, 2 correct ones and the sum of confidences -2e-06"},
		{"confidence_bins", 3, 2, bin(3, 4, 2, sum(16./15, 1e-6)), ""},
		{"confidence_bins", 3, 2, bin(3, 4, 2, sum(16./15, 2e-6)), "bin 3 has 4 examples"},
		{"confidence_bins", 3, 2, bin(3, 4, 2, .7), "bin 3 has 4 examples"},
		{"confidence_bins", 3, 3, bin(3, 2, 3, .5), "bin 3 has 2 examples, 3 correct ones"},
		{"confidence_bins", 3, 2, bin(3, 3, 2, .7), "the bins lack 1 examples and 0 correct ones"},
		{"confidence_bins", 3, 2, bin(3, 4, 1, 1), "the bins lack 0 examples and 1 correct ones"},
		{"confidence_bins", 3, 2, bin(3, 5, 2, 1.2), "bin 3 has 5 examples"},
	} {
		err := find(c.name).Check(c.v, ReportedTest{4, c.classes, Statistics{"correct": {c.correct}}})
		if (err == nil) != (c.complains == "") || err != nil && !strings.Contains(err.Error(), c.complains) {
			t.Errorf("%s %v of %v correct ones: %v, want %q", c.name, c.v, c.correct, err, c.complains)
		}
	}
}

// A reply has every statistic that reveals no labels, and the others only where they are asked for.
func TestCheckOfNames(t *testing.T) {
	for says, edit := range map[string]func(s Statistics){
		"the reply lacks the statistic f1; use the same release on both sides": func(s Statistics) { delete(s, "f1") },
		"the statistic confusion has 2 numbers; it must have 3": func(s Statistics) {
			s["confusion"] = []float64{0, 0}
		},
		`the reply has the unexpected statistic "x"`:     func(s Statistics) { s["x"] = nil },
		"the statistic f1 has 2 numbers; it must have 1": func(s Statistics) { s["f1"] = []float64{0, 0} },
		"the statistic brier holds +Inf; its numbers must be finite": func(s Statistics) {
			s["brier"][0] = math.Inf(1)
		},
		"the statistic brier holds NaN; its numbers must be finite": func(s Statistics) { s["brier"][0] = math.NaN() },
		"": func(s Statistics) { delete(s, "confusion") }, // it may be withheld
	} {
		s := Compute(drawn(1, 9), true)
		edit(s)
		if err := s.Check(9, 5, true); fmt.Sprint(err) != cmp.Or(says, "<nil>") {
			t.Errorf("%v, want %s", err, says)
		}
	}
	s := Compute(drawn(1, 9), true)
	if err := s.Check(9, 5, false); fmt.Sprint(err) != `the reply has the unexpected statistic "confusion"` {
		t.Error(err)
	}
	all := []string{"sum of squared errors of class probabilities", "confidence bins", "confusion matrix",
		"number of correct images", "macro-F1", "number of images that are correct among the client's own classes"}
	if got := strings.Join(Titles(true), "; "); got != strings.Join(all, "; ") {
		t.Error(got)
	}
	if got := strings.Join(Titles(false), "; "); got != strings.ReplaceAll(strings.Join(all, "; "),
		"confusion matrix; ", "") {
		t.Error(got)
	}
	for _, c := range []struct {
		name string
		t    *tensor.Tensor
		says string
	}{{"x", tensor.OfInts(nil, 0, 3), "unexpected statistic"}, {"f1", tensor.OfInts(nil, 0, 3), "unexpected statistic"},
		{"confusion", tensor.New(1, 3), "int64 table of 3 columns"},
		{"confusion", tensor.OfInts([]int64{1, 2, 3}, 3), "has the shape [3]"},
		{"confusion", tensor.OfInts([]int64{1, 2}, 1, 2), "has the shape [1 2]"}} {
		err := Statistics{}.AddTables(tensor.Map{c.name: c.t})
		goldentest.WantErrorOf(t, fmt.Sprint(c.name, c.t.Shape), err, c.says)
	}
	if s := (Statistics{"correct": {1}}).Tables(); s != nil {
		t.Error(s)
	}
	if s := TableSpecs(5)[0]; len(TableSpecs(5)) != 1 || s.Name != "confusion" || s.Shape[0] != -25 || s.Shape[1] != 3 {
		t.Errorf("%+v", s)
	}
}
