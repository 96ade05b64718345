package metrics

import (
	"math"
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
