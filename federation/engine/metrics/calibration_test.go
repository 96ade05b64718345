package metrics

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"promptfed/runtime/tensor"
)

// TestCalibrationByHand: two classes with scores 0 and ln(p/(1-p)) have confidence p. Of three examples at 0.9 (bin 14)
// two are right, of one at 0.6 (its upper edge 9/15 is inside bin 9) none: |2 - 2.7| + |0 - 0.6| = 1.3 over 4 examples.
func TestCalibrationByHand(t *testing.T) {
	logit := func(p float64) float32 { return float32(math.Log(p / (1 - p))) }
	scores := tensor.Of([]float32{0, logit(.9), 0, logit(.9), 0, logit(.9), 0, logit(.6)}, 4, 2)
	c := calibration(scores, []int64{1, 1, 0, 0})
	if got := c.ECE(); math.Abs(got-1.3/4) > 1e-7 {
		t.Errorf("the error is %g, want %g", got, 1.3/4)
	}
	if c[13].Examples != 3 || c[13].Correct != 2 {
		t.Errorf("the bin of 0.9 is %+v", c[13])
	}
	if err := c.Check(4, 2); err != nil {
		t.Error(err)
	}
	for name, broken := range map[string]Calibration{"too few bins": c[:14], "more right": {13: {3, 4, 2.7}, 14: {}},
		"a confidence of another bin": {13: {4, 2, .5}, 14: {}}, "negative": {13: {4, 2, math.NaN()}, 14: {}}} {
		if broken.Check(4, 2) == nil {
			t.Errorf("%s: %+v is taken", name, broken)
		}
	}
	if err := c.Check(5, 2); err == nil {
		t.Error("bins of four examples are taken for five")
	}
}

// TestCalibrationGolden compares with tools/golden/calibration.py, each case by itself and all of them added up.
func TestCalibrationGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/calibration.json")
	if err != nil {
		t.Fatal(err)
	}
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
	var all Calibration
	for i, c := range golden.Cases {
		var flat []float32
		for _, row := range c.Scores {
			flat = append(flat, row...)
		}
		bins := calibration(tensor.Of(flat, len(c.Scores), len(c.Scores[0])), c.Labels)
		if got := bins.ECE(); math.Abs(got-c.ECE) > 1e-12 {
			t.Errorf("case %d: %.15g, want %.15g", i, got, c.ECE)
		}
		all = all.Add(bins)
	}
	if got := all.ECE(); math.Abs(got-golden.Together) > 1e-12 {
		t.Errorf("together %.15g, want %.15g", got, golden.Together)
	}
}

// TestWorstTenth: of 11 accuracies ceil(11/10) = 2 count, of 10 one, of one itself.
func TestWorstTenth(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{[]float64{.9, .1, .8, .7, .6, .5, .4, .3, .9, .9, .9}, .2}, {[]float64{.9, .1, .8, .7, .6, .5, .4, .3, .9, .9},
		.1}, {[]float64{.5}, .5}} {
		if got := WorstTenth(c.of); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %g, want %g", c.of, got, c.want)
		}
	}
}
