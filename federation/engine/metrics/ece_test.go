package metrics

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/tensor"
)

// oneClient evaluates one client with these test examples.
func oneClient(scores *tensor.Tensor, labels []int64) *Evaluation {
	return Evaluate([]Client{{Examples: len(labels), Statistics: Compute(Examples{Scores: scores, Labels: labels},
		true)}})
}

// near compares a metric of an evaluation with an expected value.
func near(t *testing.T, what string, e *Evaluation, name string, want, within float64) {
	t.Helper()
	if got, ok := e.Value(name); !ok || math.Abs(got-want) > within {
		t.Errorf("%s: %s is %.15g (%v), want %.15g", what, name, got, ok, want)
	}
}

// TestECEByHand: of two classes with scores 0 and ln(p/(1-p)) the second has confidence p. Two of three examples at 0.9
// (bin 14) are correct, and none of one at 0.6 (the upper edge 9/15 is in bin 9): (|2 - 2.7| + |0 - 0.6|)/4 = 1.3/4.
func TestECEByHand(t *testing.T) {
	logit := func(p float64) float32 { return float32(math.Log(p / (1 - p))) }
	scores := tensor.Of([]float32{0, logit(.9), 0, logit(.9), 0, logit(.9), 0, logit(.6)}, 4, 2)
	labels := []int64{1, 1, 0, 0}
	near(t, "by hand", oneClient(scores, labels), ECE, 1.3/4, 1e-7)
	good := Compute(Examples{Scores: scores, Labels: labels}, false)
	if b := good[confidences.Name][39:42]; b[0] != 3 || b[1] != 2 {
		t.Errorf("the bin of 0.9 is %v", b)
	}
	if err := good.Check(4, 2, false); err != nil {
		t.Error(err)
	}
	if err := good.Check(5, 2, false); err == nil {
		t.Error("bins of four examples are taken for five")
	}
	for name, bin := range map[string][]float64{"one more is correct": {3, 3, 2.7}, "a confidence of another bin": {3,
		2, .5},
		"a fraction": {2.5, 2, 2.3}, "negative": {-3, 2, -2.7}, "no number": {3, 2, math.NaN()}} {
		broken := Statistics{}
		for k, v := range good {
			broken[k] = slices.Clone(v)
		}
		copy(broken[confidences.Name][39:], bin)
		if broken.Check(4, 2, false) == nil {
			t.Errorf("%s: %v is taken", name, bin)
		}
	}
}

// goldenCases returns the test examples of tools/golden/calibration.py and their expected calibration errors; the last
// error is over all cases together.
func goldenCases(t *testing.T) (cases []Examples, ece []float64) {
	t.Helper()
	b := filetest.Read(t, "testdata/calibration.json")
	var golden struct {
		Cases []struct {
			Scores [][]float32
			Labels []int64
			ECE    float64
		}
		Together float64
	}
	if err := json.Unmarshal(b, &golden); err != nil || len(golden.Cases) == 0 {
		t.Fatal(err, len(golden.Cases))
	}
	for _, c := range golden.Cases {
		cases = append(cases, Examples{Scores: tensor.Of(slices.Concat(c.Scores...), len(c.Scores), len(c.Scores[0])),
			Labels: c.Labels})
		ece = append(ece, c.ECE)
	}
	return cases, append(ece, golden.Together)
}

// likeGolden compares a metric with the expected value of each golden case and, at the end, of all cases as clients of
// one test. NaN stands for no value.
func likeGolden(t *testing.T, name string, want []float64) {
	t.Helper()
	cases, _ := goldenCases(t)
	var all []Client
	check := func(clients []Client, want float64) {
		t.Helper()
		if e := Evaluate(clients); !math.IsNaN(want) {
			near(t, "golden", e, name, want, 1e-12)
		} else if v, ok := e.Value(name); ok {
			t.Errorf("%s is %v, want none", name, v)
		}
	}
	for i, c := range cases {
		one := Client{Examples: len(c.Labels), Statistics: Compute(c, true)}
		check([]Client{one}, want[i])
		all = append(all, one)
	}
	check(all, want[len(cases)])
}

// TestECEGolden compares with tools/golden/calibration.py.
func TestECEGolden(t *testing.T) {
	_, want := goldenCases(t)
	likeGolden(t, ECE, want)
}
