package metrics

import (
	"math"
	"testing"

	"promptfed/runtime/tensor"
)

// TestClassify: four examples of classes 0, 0, 2, 2, said to be 0, 1, 2, 0 (a tie goes to the first). By hand: class 0
// has TP 1, FP 1, FN 1, so F1 1/2; class 2 has TP 1, FP 0, FN 1, so 2/3; class 1 does not occur and does not count.
func TestClassify(t *testing.T) {
	scores := tensor.Of([]float32{
		3, 1, 2,
		0, 5, 1,
		-2, -3, -1,
		4, 0, 4}, 4, 3)
	h := Classify(scores, []int64{0, 0, 2, 2}, []int64{0, 2})
	if h.Correct != 2 || math.Abs(h.F1-(0.5+2.0/3)/2) > 1e-15 {
		t.Errorf("%+v", h)
	}
	// Among classes 0 and 2 alone the first and the third are right, among 0 and 1 the first: class 2 is none of them.
	if other := Classify(scores, []int64{0, 0, 2, 2}, []int64{0, 1}); h.CorrectOwn != 2 || other.CorrectOwn != 1 {
		t.Errorf("%d and %d are right among some classes, want 2 and 1", h.CorrectOwn, other.CorrectOwn)
	}
	if h := Classify(tensor.New(0, 3), nil, nil); h.Correct != 0 || h.F1 != 0 {
		t.Errorf("of nothing: %+v", h)
	}
}
