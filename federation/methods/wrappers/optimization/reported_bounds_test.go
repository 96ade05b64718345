package optimization_test

import (
	"math"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// One client of three that reports a loss of 0 does not stop the others: its loss counts as a tenth of the median, and
// a note counts it. Honest losses are neither changed nor noted. From the formula with q = 1, L = 2, moves of 1 and 5
// examples each, the step is Σ F / Σ (2 + F).
func TestALowLossIsBounded(t *testing.T) {
	m := methodtest.Build(t, "promptfl", []string{"qffl"}, map[string]any{"q": 1.0})
	for _, c := range []struct {
		losses      []float32
		want, noted float64
	}{{[]float32{1, 1, 0}, 2.1 / 8.1, 1}, {[]float32{1, 1, 1e-30}, 2.1 / 8.1, 1}, {[]float32{1, 1, .5}, 2.5 / 8.5, 0},
		{[]float32{1, 0, 100, 1}, 12.1 / 20.1, 2}, {[]float32{1, 1, 100, 0, 1}, 13.1 / 23.1, 2}} {
		g := &method.Global{LR: 0.5, Shared: tensor.Map{"ctx": tensor.New(1, 1)}, Notes: map[string]float64{}}
		var ups []method.Upload
		for i, v := range c.losses {
			ups = append(ups, method.Upload{Client: i, N: 5, Shared: tensor.Map{"ctx": tensor.Of([]float32{1}, 1, 1)},
				Extra: tensor.Map{"qffl/loss": tensor.Of([]float32{v}, 1)}})
		}
		err := m.Merge(g, ups)
		if got := float64(g.Shared["ctx"].Data[0]); err != nil || math.Abs(got-c.want) > 1e-6 ||
			g.Notes["qffl/loss_bounded"] != c.noted {
			t.Errorf("losses %v: %v and notes %v, %v; want %v and %v", c.losses, got, g.Notes, err, c.want, c.noted)
		}
	}
}

// With a small exponent a loss of 0 weighed 10^8 times its squared move.
func TestALowLossStopsNothing(t *testing.T) {
	honest, err := mergedReports(t, "qffl", "qffl/loss", nil, 1, 1, 1, 1)
	goldentest.NoError(t, err)
	lied, err := mergedReports(t, "qffl", "qffl/loss", nil, 1, 1, 1, 0)
	if err != nil || lied < honest/2 || lied > honest*2 {
		t.Errorf("the step is %v with a loss of 0, and %v without: %v", lied, honest, err)
	}
}
