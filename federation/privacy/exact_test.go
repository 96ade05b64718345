package privacy

import (
	"math"
	"testing"

	"promptfed/runtime/goldentest"
)

// TestDropOuts compares with integrals over the densities (tools/golden/privacy_exact.py) of whole runs whose noise and
// rate change from round to round, as drop-outs change them. Divergences are exact for all clients, and for Poisson
// samples at whole orders. Elsewhere they are bounds above the integrals; for a sample of fixed size the integral is
// for one pair of densities. No epsilon is below that of the product of all rounds. Where divergences are exact,
// epsilon exceeds it by the loss of the conversion, here at most a half.
func TestDropOuts(t *testing.T) {
	var cases []struct {
		Name       string
		Poisson    bool
		Rounds     []struct{ Noise, Rate float64 }
		Delta      float64
		Orders     []float64
		Divergence []float64
		Epsilon    float64
	}
	goldentest.ReadJSON(t, "testdata/exact.json", &cases)
	for _, c := range cases {
		spent := Accountant{}
		for _, r := range c.Rounds {
			spent[RoundRelease{r.Noise, r.Rate, c.Poisson}]++
		}
		exact := c.Poisson || c.Rounds[0].Rate == 1
		for i, a := range c.Orders {
			got, want := 0.0, c.Divergence[i]
			for r, n := range spent {
				got += float64(n) * r.Divergence(a)
			}
			if !(got >= want*(1-1e-9)) || math.IsInf(got, 1) || exact && (a == math.Trunc(a) ||
				!c.Poisson) && !(got <= want*(1+1e-9)) {
				t.Errorf("%s, order %v: divergence %v, the integral is %v", c.Name, a, got, want)
			}
		}
		got := spent.Epsilon(c.Delta)
		if !(got >= c.Epsilon) || exact && !(got <= 1.5*c.Epsilon) {
			t.Errorf("%s: epsilon %v, that of the whole run is %v", c.Name, got, c.Epsilon)
		}
		t.Logf("%s: epsilon %.4g, exactly %.4g", c.Name, got, c.Epsilon)
	}
	if len(cases) < 6 {
		t.Errorf("%d cases", len(cases))
	}
}

// Rounds of one kind have the same cost with any grouping and any order of the kinds.
func TestSpentAddsUp(t *testing.T) {
	a, b := RoundRelease{2, 0.1, true}, RoundRelease{3, 0.2, true}
	curve, one, two := Accountant{a: 3, b: 2}.Curve(), a.Curve(), b.Curve()
	for i := range Orders {
		if want := 3*one[i] + 2*two[i]; math.Abs(curve[i]-want) > 1e-12*want {
			t.Fatalf("order %v: %v, want %v", Orders[i], curve[i], want)
		}
	}
	if e := (Accountant{a: 0}).Epsilon(1e-5); e != 0 {
		t.Errorf("no round costs %v", e)
	}
}
