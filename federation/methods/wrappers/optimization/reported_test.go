package optimization_test

import (
	"math"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/runtime/tensor"
)

// mergedReports returns the merged prompt, from 0: each upload moves it by 1 and reports a number.
func mergedReports(t *testing.T, wrapper, name string, o map[string]any, reported ...float32) (float64, error) {
	m, err := methods.Build("promptfl", []string{wrapper}, o)
	if err != nil {
		t.Fatal(err)
	}
	g := &method.Global{LR: 0.5, Shared: tensor.Map{"ctx": tensor.New(1, 1)}}
	var ups []method.Upload
	for i, v := range reported {
		ups = append(ups, method.Upload{Client: i, N: 5, Shared: tensor.Map{"ctx": tensor.Of([]float32{1}, 1, 1)},
			Extra: tensor.Map{name: tensor.Of([]float32{v}, 1)}})
	}
	err = m.Merge(g, ups)
	return float64(g.Shared["ctx"].Data[0]), err
}

// A false report of work or loss counts as ten times the median at most. A report that is no number is refused.
func TestReportedNumbersAreBounded(t *testing.T) {
	q1 := map[string]any{"q": 1.0}
	for _, c := range []struct {
		wrapper, name string
		options       map[string]any
		reported      []float32
		want          float64 // from the formulas: Σ a/3; Σ F over Σ (2 + F), with L = 2 and moves of 1
	}{
		{"fednova", "nova/a", nil, []float32{2, 2, 5}, 3}, {"fednova", "nova/a", nil, []float32{2, 2, 1e9}, 8},
		{"qffl", "qffl/loss", q1, []float32{1, 1, 4}, 6. / 12}, {"qffl", "qffl/loss", q1, []float32{1, 1, 1e9},
			12. / 18},
	} {
		got, err := mergedReports(t, c.wrapper, c.name, c.options, c.reported...)
		if err != nil || math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s of %v: %v, %v; want %v", c.wrapper, c.reported, got, err, c.want)
		}
		for _, bad := range []float32{-1, float32(math.NaN()), float32(math.Inf(1))} {
			if _, err := mergedReports(t, c.wrapper, c.name, c.options, 1, bad); err == nil ||
				!strings.Contains(err.Error(), "client 1 uploaded") {
				t.Errorf("%s takes %v: %v", c.wrapper, bad, err)
			}
		}
	}
}
