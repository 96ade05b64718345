package privacy

import (
	"math"
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
)

// TestGoogle compares with Google's accountant, through tools/golden/privacy.py.
func TestGoogle(t *testing.T) {
	var cases []struct {
		Poisson               bool
		Noise, Delta, Epsilon float64
		M, N, Rounds          int
		Orders                []float64
		Divergence            []*float64
	}
	goldentest.ReadJSON(t, "testdata/epsilon.json", &cases)
	off := func(got, want float64) bool { return !(math.Abs(got-want) <= 1e-6*math.Abs(want)) }
	worst := 0.0
	for _, c := range cases {
		r := RoundRelease{Noise: c.Noise, Rate: float64(c.M) / float64(c.N), Poisson: c.Poisson}
		for i, a := range c.Orders {
			got, want := r.Divergence(a), math.Inf(1)
			if c.Divergence[i] != nil {
				want = *c.Divergence[i]
				worst = max(worst, math.Abs(got-want)/want)
			}
			if got != want && off(got, want) {
				t.Errorf("%+v, order %v: divergence %v, want %v", r, a, got, want)
			}
		}
		if got := (Accountant{r: c.Rounds}).Epsilon(c.Delta); off(got, c.Epsilon) {
			t.Errorf("%+v, %d rounds, delta %v: epsilon %v, want %v", r, c.Rounds, c.Delta, got, c.Epsilon)
		}
	}
	t.Logf("%d cases, largest difference of a divergence %.1g of it", len(cases), worst)
}

// By hand: without sampling one round of order a has a/(2z²). Replacing one client's update costs 4 times as much.
func TestByHand(t *testing.T) {
	if got := (RoundRelease{Noise: 2, Rate: 1, Poisson: true}).Divergence(8); got != 1 {
		t.Errorf("%v, want 8/(2·4) = 1", got)
	}
	if got := (RoundRelease{Noise: 2, Rate: 1}).Divergence(8); got != 4 {
		t.Errorf("%v, want 8/(2·1) = 4", got)
	}
	// Order 2 of a Poisson sample: log(1 + q² (e^(1/z²) - 1)).
	if got, want := (RoundRelease{Noise: 1, Rate: 0.5, Poisson: true}).Divergence(2),
		math.Log(1+0.25*(math.E-1)); math.Abs(got-want) > 1e-14 {
		t.Errorf("%v, want %v", got, want)
	}
	if e := (Accountant{{Rate: 0.1, Poisson: true}: 1}).Epsilon(1e-5); !math.IsInf(e, 1) {
		t.Errorf("no noise has epsilon %v", e)
	}
	if e := (Accountant{{Noise: 1, Rate: 0}: 1}).Epsilon(1e-5); e != 0 {
		t.Errorf("nobody drawn has epsilon %v", e)
	}
	if e := (Accountant{{Rate: 0.1, Poisson: true}: 0}).Epsilon(1e-5); e != 0 {
		t.Errorf("no round without noise has epsilon %v", e)
	}
	for _, r := range []RoundRelease{{}, {Rate: 1}} {
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, r := range []RoundRelease{{Noise: -1, Rate: 0.5}, {Noise: math.NaN(), Rate: 0.5}, {Noise: math.Inf(1)},
		{Noise: 1, Rate: 1.1}} {
		if r.Check() == nil {
			t.Errorf("%+v was accepted", r)
		}
	}
}

// More noise, fewer rounds, fewer clients drawn and a larger delta cost less.
func TestMonotone(t *testing.T) {
	for _, poisson := range []bool{true, false} {
		at := func(noise, rate, delta float64, rounds int) float64 {
			return Accountant{RoundRelease{noise, rate, poisson}: rounds}.Epsilon(delta)
		}
		base := at(2, 0.1, 1e-5, 20)
		for what, less := range map[string]float64{"noise": at(3, 0.1, 1e-5, 20), "rate": at(2, 0.05, 1e-5, 20),
			"delta": at(2, 0.1, 1e-4, 20), "rounds": at(2, 0.1, 1e-5, 10)} {
			if !(less < base && less > 0) {
				t.Errorf("poisson %v, %s: %v against %v", poisson, what, less, base)
			}
		}
	}
}

// Both ways to compute erfc agree at 20, where the series begins.
func TestTail(t *testing.T) {
	for _, x := range []float64{20, 22, 25} {
		if got, want := logHalfErfc(x), math.Log(math.Erfc(x)/2); math.Abs(got-want) > 1e-11 {
			t.Errorf("log(erfc(%v)/2) is %v, want %v", x, got, want)
		}
	}
}

// The orders are 1.1 to 10.9 by tenths, 11 to 63, and four more.
func TestOrders(t *testing.T) {
	if len(Orders) != 99+53+4 || Orders[0] != 1.1 || Orders[98] != 10.9 || Orders[99] != 11 || Orders[151] != 63 ||
		!slices.Equal(Orders[152:], []float64{128, 256, 512, 1024}) {
		t.Errorf("%v", Orders)
	}
}

// With noise 50 at a rate of 1/2, the series of an order between 2 and 3 does not end within its 1000 terms. (a-1)
// times the divergence is convex in the order, so that a quarter of the way from 2 to 3 it is at most 3/4 of that of
// order 2 and 1/4 of that of order 3.
func TestOrderWhoseSeriesDoesNotEnd(t *testing.T) {
	r := RoundRelease{Noise: 50, Rate: 0.5, Poisson: true}
	got, want := r.Divergence(2.25)*1.25, 0.75*r.Divergence(2)+0.25*2*r.Divergence(3)
	if math.Abs(got-want) > 1e-9*want {
		t.Errorf("%v, want %v", got, want)
	}
}

// 3-2 = 1, 2-3 = -1, 3-(-2) = 5, -3-2 = -5 and 3-3 = 0, as logarithms of absolute values and signs.
func TestDifference(t *testing.T) {
	two, three, five, none := math.Log(2), math.Log(3), math.Log(5), math.Inf(-1)
	for _, c := range []struct {
		x      float64
		xMinus bool
		y      float64
		yMinus bool
		want   float64
		minus  bool
	}{
		{three, false, two, false, 0, false}, {two, false, three, false, 0, true},
		{three, true, two, true, 0, true}, {two, true, three, true, 0, false},
		{three, false, two, true, five, false}, {two, true, three, false, five, true},
		{three, false, three, false, none, false}, {none, false, none, true, none, false},
	} {
		got, minus := difference(c.x, c.xMinus, c.y, c.yMinus)
		if minus != c.minus || got != c.want && !(math.Abs(got-c.want) < 1e-15) {
			t.Errorf("%+v: %v %v", c, got, minus)
		}
	}
}
