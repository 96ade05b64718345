package metrics

import (
	"math"
	"testing"

	"promptfed/runtime/tensor"
)

// TestKappaByHand: labels 0, 0, 1, 1 are predicted as 0, 1, 1, 1. p_o is 3/4 and p_e is 1/2 x 1/4 + 1/2 x 3/4 = 1/2, so
// kappa is 1/2. Labels 0, 1 predicted as 1, 0 have p_o 0 and p_e 1/2, so kappa is -1, the lower bound.
func TestKappaByHand(t *testing.T) {
	scores := tensor.Of([]float32{1, 0, 0, 1, 0, 1, 0, 1}, 4, 2)
	near(t, "by hand", oneClient(scores, []int64{0, 0, 1, 1}), Kappa, .5, 0)
	near(t, "swapped", oneClient(tensor.Of([]float32{0, 1, 1, 0}, 2, 2), []int64{0, 1}), Kappa, -1, 0)
	if v, ok := oneClient(tensor.Of([]float32{1, 0}, 1, 2), []int64{0}).Value(Kappa); ok {
		t.Errorf("one class alone has kappa %v", v)
	}
}

// TestKappaGolden compares with exact fractions of Cohen's formula (Python's fractions) for the cases of
// tools/golden/calibration.py. sklearn.metrics.cohen_kappa_score has the same formula, and no value for the fourth
// case, which is one example.
func TestKappaGolden(t *testing.T) {
	likeGolden(t, Kappa, []float64{151. / 351, 44. / 59, 106. / 181, math.NaN(), 4483. / 6436})
}
