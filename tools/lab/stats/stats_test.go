package stats

import (
	"math"
	"testing"

	"promptfed/runtime/goldentest"
)

func near(a, b, tolerance float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= tolerance*max(1, math.Abs(b))
}

// The numbers come from scipy, statsmodels and numpy: tools/golden/significance.py.
func TestSignificanceGolden(t *testing.T) {
	var golden struct {
		Cases []struct {
			Name         string
			Differences  []float64
			T            float64
			TP           float64 `json:"t_p"`
			W            float64
			WP           float64 `json:"w_p"`
			Cohen        float64
			RankBiserial float64 `json:"rank_biserial"`
		}
		Holm      []struct{ P, Holm []float64 }
		Bootstrap []struct {
			Name     string
			Clusters [][]float64
			Interval [2]float64
		}
	}
	goldentest.ReadJSON(t, "testdata/significance.json", &golden)
	if len(golden.Cases) < 8 || len(golden.Holm) < 5 || len(golden.Bootstrap) < 3 {
		t.Fatal("the golden file is too small")
	}
	for _, c := range golden.Cases {
		pt, w := PairedT(c.Differences), SignedRank(c.Differences)
		for _, v := range []struct {
			what      string
			got, want float64
		}{
			{"t", pt.Statistic, c.T}, {"p of t", pt.P, c.TP}, {"rank sum", w.Statistic, c.W}, {"p of the rank sum", w.P,
				c.WP},
			{"Cohen's d", CohensD(c.Differences), c.Cohen}, {"rank-biserial", RankBiserial(c.Differences),
				c.RankBiserial},
		} {
			if !near(v.got, v.want, 1e-10) {
				t.Errorf("%s: %s is %v, want %v", c.Name, v.what, v.got, v.want)
			}
		}
	}
	for _, c := range golden.Holm {
		for i, p := range Holm(c.P) {
			if !near(p, c.Holm[i], 1e-14) {
				t.Errorf("Holm of %v at %d is %v, want %v", c.P, i, p, c.Holm[i])
			}
		}
	}
	// The draws differ, so the ends differ by about 1/sqrt(20000) of the interval's width: 3 % is four times that.
	for _, c := range golden.Bootstrap {
		low, high := Bootstrap(c.Clusters, 20000, 3)
		width := c.Interval[1] - c.Interval[0]
		if math.Abs(low-c.Interval[0]) > .03*width || math.Abs(high-c.Interval[1]) > .03*width {
			t.Errorf("%s: interval %v to %v, want %v", c.Name, low, high, c.Interval)
		}
		again, _ := Bootstrap(c.Clusters, 20000, 3)
		if other, _ := Bootstrap(c.Clusters, 20000, 4); again != low || other == low {
			t.Errorf("%s: the seed does not decide the interval", c.Name)
		}
	}
}

// Results of the tests on input without a testable difference.
func TestSignificanceEdges(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		d     []float64
		t, wp float64
	}{
		// 2 of 8 signs
		{nil, nan, 1}, {[]float64{0, 0, 0}, nan, 1}, {[]float64{.5}, nan, 1}, {[]float64{.1, .1, .1}, nan, .25},
		{[]float64{1, -1}, 1, 1},
	} {
		if got := PairedT(c.d); !near(got.P, c.t, 1e-12) {
			t.Errorf("p of t of %v is %v, want %v", c.d, got.P, c.t)
		}
		if got := SignedRank(c.d); !near(got.P, c.wp, 1e-12) {
			t.Errorf("p of the rank sum of %v is %v, want %v", c.d, got.P, c.wp)
		}
	}
	if got := Holm([]float64{nan, .02, nan, .03}); !math.IsNaN(got[0]) || got[1] != .04 || got[3] != .04 {
		t.Errorf("Holm with missing tests: %v", got)
	}
	if low, _ := Bootstrap([][]float64{{1}}, 100, 1); !math.IsNaN(low) {
		t.Errorf("an interval from one value: %v", low)
	}
	if low, high := Bootstrap([][]float64{{1}, {1}, {}}, 100, 1); math.IsNaN(low) || low < 0 || high > 1 {
		t.Errorf("interval %v to %v of two ones and an empty run", low, high)
	}
}
