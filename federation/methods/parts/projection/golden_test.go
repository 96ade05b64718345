package projection

import (
	"fmt"
	"math"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// golden is a case of testdata/projectors.json, written by tools/golden/projection.py: Q by NumPy (complete QR) or
// PyTorch 1.13 (SVD), DP by PyTorch's autograd, both float64, reduced to the columns Cols.
type golden struct {
	Kind string
	Rho  float64
	T, D int
	Cols []int
	Q    []float64
	DP   []float64 `json:"dp"`
}

func readGoldens(t *testing.T) []golden {
	t.Helper()
	var cases []golden
	goldentest.ReadJSON(t, "testdata/projectors.json", &cases)
	return cases
}

// lcg draws the numbers of tools/golden/projection.py.
func lcg(seed uint64, shape ...int) *tensor.Tensor {
	out := tensor.New(shape...)
	for i := range out.Data {
		seed = (seed*1103515245 + 12345) % (1 << 31)
		out.Data[i] = float32(float64(seed)/(1<<31) - 0.5)
	}
	return out
}

// columnsError returns the largest difference of x [n,d] from want [n,len(cols)], relative to want's largest value.
func columnsError(x *tensor.Tensor, cols []int, want []float64) float64 {
	d := x.Shape[1]
	worst, scale := 0.0, 0.0
	for k, w := range want {
		got := float64(x.Data[k/len(cols)*d+cols[k%len(cols)]])
		worst = max(worst, math.Abs(got-w))
		scale = max(scale, math.Abs(w))
	}
	return worst / max(scale, 1e-30)
}

func TestGoldens(t *testing.T) {
	for _, c := range readGoldens(t) {
		t.Run(fmt.Sprintf("%s-%v-%dx%d", c.Kind, c.Rho, c.T, c.D), func(t *testing.T) {
			p, g := lcg(7, c.T, c.D), lcg(11, c.D, c.D)
			q := project(t, p, c.Kind, c.Rho)
			if e := columnsError(q.Dense(), c.Cols, c.Q); !(e < 1e-6) {
				t.Errorf("Q differs by %g", e)
			}
			if c.DP == nil {
				return
			}
			dp, err := vjpOf(p, c.Kind, c.Rho, g)
			goldentest.NoError(t, err)
			// A projector that keeps everything has gradient zero, up to PyTorch's rounding.
			if dp.MaxAbs() < 1e-12 {
				for _, w := range c.DP {
					if math.Abs(w) > 1e-9 {
						t.Fatalf("gradient is zero, want %g", w)
					}
				}
				return
			}
			if e := columnsError(dp, c.Cols, c.DP); !(e < 1e-6) {
				t.Errorf("gradient differs by %g", e)
			}
		})
	}
}
