package projection

import (
	"math"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// TestPacked: unpacked factors equal the projector, for every kind, and for prompts of full, deficient and zero rank.
func TestPacked(t *testing.T) {
	prompts := map[string]*tensor.Tensor{
		"full":      tensor.Of([]float32{1, 2, 0, -1, 0.5, 3, 0, 1, 1, -2, 0.25, 4}, 2, 6),
		"deficient": tensor.Of([]float32{1, 2, 0, -1, 0.5, 3, 2, 4, 0, -2, 1, 6}, 2, 6),
		"none":      tensor.New(2, 6),
		"tall":      lcg(3, 7, 6),
	}
	for name, p := range prompts {
		for _, kind := range Kinds() {
			for _, rho := range []float64{0.2, 0.5, 0.8, 1} {
				q := project(t, p, kind, rho)
				o := OfPrompt{Projector: kind, Ratio: rho, Gradient: "through"}
				packed, _, err := o.Factors(p)
				goldentest.NoError(t, err)
				got, want := o.packing(p.Shape[0], 6).dense(packed), q.Dense()
				for i := range want.Data {
					if math.Abs(float64(got.Data[i]-want.Data[i])) > 1e-6 {
						t.Fatalf("%s, %s, %v: element %d is %g, want %g", name, kind, rho, i, got.Data[i], want.Data[i])
					}
				}
			}
		}
	}
}
