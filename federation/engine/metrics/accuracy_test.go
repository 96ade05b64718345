package metrics

import (
	"math"
	"slices"
	"testing"

	"promptfed/runtime/tensor"
)

// TestStatisticsByHand: four examples of classes 0, 0, 2, 2 are predicted as 0, 1, 2, 0 (among equal scores the first
// counts). Class 0 has TP 1, FP 1, FN 1, so F1 1/2. Class 2 has TP 1, FP 0, FN 1, so 2/3. Class 1 does not occur and
// does not count. Among classes 0 and 2 alone the first and the third example are correct; among 0 and 1 the first, as
// class 2 is not among them.
func TestStatisticsByHand(t *testing.T) {
	scores := tensor.Of([]float32{
		3, 1, 2,
		0, 5, 1,
		-2, -3, -1,
		4, 0, 4}, 4, 3)
	for _, c := range []struct {
		own  []int64
		want float64
	}{{[]int64{0, 2}, 2}, {[]int64{0, 1}, 1}} {
		s := Compute(Examples{Scores: scores, Labels: []int64{0, 0, 2, 2}, Own: c.own}, false)
		if s["correct"][0] != 2 || math.Abs(s["f1"][0]-(0.5+2.0/3)/2) > 1e-15 || s["own_correct"][0] != c.want {
			t.Errorf("own classes %v: %v", c.own, s)
		}
	}
	// Of the own classes 0 and 2, which have equal scores, the first counts; class 1 is no own class.
	for label, want := range map[int64]float64{0: 1, 2: 0, 1: 0} {
		s := Compute(Examples{Scores: tensor.Of([]float32{4, 9, 4}, 1, 3), Labels: []int64{label},
			Own: []int64{0, 2}}, false)
		if s["own_correct"][0] != want {
			t.Errorf("label %d: %v", label, s)
		}
	}
	if s := Compute(Examples{Scores: tensor.New(0, 3)}, true); s["correct"][0] != 0 || s["f1"][0] != 0 {
		t.Errorf("of nothing: %v", s)
	}
}

// TestWorstTenth: of 11 accuracies ceil(11/10) = 2 count, of 10 one, of one that one.
func TestWorstTenth(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{.9, .1, .8, .7, .6, .5, .4, .3, .9, .9, .9}, .2}, {[]float64{.9, .1, .8, .7, .6, .5, .4, .3, .9, .9},
		.1}, {[]float64{.5}, .5}} {
		if got := worstTenth(c.of); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %g, want %g", c.of, got, c.want)
		}
	}
}

// TestAccuraciesByHand: clients of 4, 1 and 5 examples have 2, 0 and 5 correct ones, so accuracies of 1/2, 0 and 1. The
// domains are Art with 1/2 and 1, and Photo with 0.
func TestAccuraciesByHand(t *testing.T) {
	e := Evaluate([]Client{{"Art", 4, Statistics{"correct": {2}, "own_correct": {4}}},
		{"Photo", 1, Statistics{"correct": {0}, "own_correct": {1}}},
		{"Art", 5, Statistics{"correct": {5}, "own_correct": {0}}}})
	for name, want := range map[string]float64{Accuracy: .5, Weighted: .7, Worst: 0, Worst10: 0,
		ClientStd: math.Sqrt(.5 / 3), DomainMean: .375, DomainStd: .375, OwnClasses: 2. / 3} {
		near(t, "by hand", e, name, want, 1e-15)
	}
	if len(e.Values) != 8 || e.PerDomain["Art"] != .75 || e.PerDomain["Photo"] != 0 ||
		e.Accuracy() != e.Values[Accuracy] {
		t.Errorf("%+v", e)
	}
	if v := e.OnValidation(); len(v.Values) != 2 || v.Values[Accuracy] != e.Values[Accuracy] ||
		v.Values[ClientStd] != e.Values[ClientStd] || !slices.Equal(v.PerClient, []float64{.5, 0, 1}) ||
		v.PerDomain != nil {
		t.Errorf("on validation data: %+v", v)
	}
	if v := (*Evaluation)(nil).OnValidation(); v != nil {
		t.Error(v)
	}
	e = Evaluate([]Client{{"", 4, Statistics{"correct": {2}}}})
	if _, ok := e.Value(DomainMean); ok || len(e.PerDomain) != 0 {
		t.Errorf("without domains: %+v", e)
	}
}

func TestMean(t *testing.T) {
	// 2, 4, 4, 4, 5, 5, 7, 9 have mean 5 and population variance 32/8.
	v := []float64{2, 4, 4, 4, 5, 5, 7, 9}
	if m, s := Mean(v), Deviation(v); m != 5 || math.Abs(s-2) > 1e-12 {
		t.Errorf("%v, %v", m, s)
	}
	if m, s := Mean(nil), Deviation(nil); m != 0 || s != 0 {
		t.Errorf("%v, %v of nothing", m, s)
	}
}
