package metrics

import (
	"math"
	"testing"

	"promptfed/runtime/tensor"
)

// TestBrierByHand: scores ln 2, 0, 0 have class probabilities (1/2, 1/4, 1/4). With label 0 the Brier score is 1/4 +
// 1/16 + 1/16 = 3/8, with label 1 it is 1/4 + 9/16 + 1/16 = 7/8, and over both 5/8.
func TestBrierByHand(t *testing.T) {
	half := float32(math.Ln2)
	near(t, "both", oneClient(tensor.Of([]float32{half, 0, 0, half, 0, 0}, 2, 3), []int64{0, 1}), Brier, 5./8, 1e-7)
	// A certain correct prediction has 0 and a certain wrong one 2, the bounds.
	near(t, "certain", oneClient(tensor.Of([]float32{99, 0}, 1, 2), []int64{0}), Brier, 0, 1e-12)
	near(t, "certain and wrong", oneClient(tensor.Of([]float32{99, 0}, 1, 2), []int64{1}), Brier, 2, 1e-12)
	s := Compute(Examples{Scores: tensor.Of([]float32{half, 0, 0, half, 0, 0}, 2, 3), Labels: []int64{0, 1}}, false)
	for _, sum := range []float64{-.1, .49, 3.1, math.NaN(), math.Inf(1)} {
		if s[squares.Name][0] = sum; s.Check(2, 3, false) == nil {
			t.Errorf("a sum of %v is taken, of one correct example and another", sum)
		}
	}
}

// TestBrierGolden compares with values computed in Python for the cases of tools/golden/calibration.py, by the formula
// math.fsum((math.exp(v)/z - (k == y))**2 for k, v in enumerate(row)) with z = math.fsum(math.exp(v) for v in row),
// averaged over the examples with fsum.
func TestBrierGolden(t *testing.T) {
	likeGolden(t, Brier, []float64{0.4458680835616577, 0.462382638062771, 0.7083072651330313, 0.2943920289043578,
		0.5046012324084342})
}
