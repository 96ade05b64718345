package stats

import (
	"math"
	"testing"

	"promptfed/runtime/goldentest"
)

// The numbers come from scipy: tools/golden/friedman.py.
func TestFriedmanGolden(t *testing.T) {
	var golden struct {
		Cases []struct {
			Name   string
			Values [][]float64
			Mean   []float64
			Chi, F float64
			ChiP   float64 `json:"chi_p"`
			FP     float64 `json:"f_p"`
		}
		Ranges []struct {
			K        int
			Alpha, Q float64
		}
	}
	goldentest.ReadJSON(t, "testdata/friedman.json", &golden)
	if len(golden.Cases) < 5 || len(golden.Ranges) < 14 {
		t.Fatal("the golden file is too small")
	}
	for _, c := range golden.Cases {
		r := Friedman(c.Values)
		for _, v := range []struct {
			what      string
			got, want float64
		}{{"chi square", r.ChiSquare.Statistic, c.Chi}, {"p of chi square", r.ChiSquare.P, c.ChiP},
			{"F", r.ImanDavenport.Statistic, c.F}, {"p of F", r.ImanDavenport.P, c.FP}} {
			if !near(v.got, v.want, 1e-10) {
				t.Errorf("%s: %s is %v, want %v", c.Name, v.what, v.got, v.want)
			}
		}
		for i, mean := range c.Mean {
			if !near(r.Mean[i], mean, 1e-14) {
				t.Errorf("%s: mean rank %d is %v, want %v", c.Name, i, r.Mean[i], mean)
			}
		}
	}
	for _, c := range golden.Ranges {
		if q := studentizedRange(float64(c.K), c.Alpha); !near(q, c.Q, 1e-8) {
			t.Errorf("the range of %d normal numbers exceeds %v with probability %v, want %v", c.K, q, c.Alpha, c.Q)
		}
	}
}

// Table 5 (a) of Demsar (2006), and the example of section 3.2.2: four classifiers on fourteen data sets differ if
// their mean ranks are 1.25 apart. The table was computed from ranges with two digits, so its last digit is uncertain.
func TestCriticalDifferenceOfThePaper(t *testing.T) {
	for i, want := range []float64{1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164} {
		if q := studentizedRange(float64(i+2), 0.05) / math.Sqrt2; math.Abs(q-want) > 1e-3 {
			t.Errorf("q of %d is %.4f, want %.3f", i+2, q, want)
		}
	}
	if cd := CriticalDifference(4, 14, 0.05); math.Abs(cd-1.25) > 5e-3 {
		t.Errorf("the critical difference of four on fourteen is %v, want 1.25", cd)
	}
}

// If all blocks agree Iman and Davenport's F has no denominator. If all treatments are equal the tests are undefined.
func TestFriedmanEdges(t *testing.T) {
	r := Friedman([][]float64{{3, 2, 1}, {9, 5, 4}})
	// chi square is at its maximum, N (k-1) = 4; its survival with two degrees of freedom is exp(-2)
	if r.ChiSquare.Statistic != 4 || !near(r.ChiSquare.P, math.Exp(-2), 1e-12) || !math.IsNaN(r.ImanDavenport.P) {
		t.Errorf("two blocks that agree: %+v", r)
	}
	r = Friedman([][]float64{{1, 1}, {2, 2}})
	if !math.IsNaN(r.ChiSquare.P) || !math.IsNaN(r.ImanDavenport.P) || r.Mean[0] != 1.5 || r.Mean[1] != 1.5 {
		t.Errorf("treatments that are equal: %+v", r)
	}
}
