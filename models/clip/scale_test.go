package clip

import (
	"math"
	"testing"
)

// The limits are powers of two, so the adjacent numbers are the next ones in float64.
func TestCheckScale(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		scale, bias float64
		ok          bool
	}{
		{100, 0, true}, {1, 0, true}, {117.33, -12.93, true}, // no scale, and SigLIP's
		{1 << 20, -(1 << 20), true}, {1.0 / (1 << 20), 1 << 20, true},
		{math.Nextafter(1<<20, inf), 0, false}, {math.Nextafter(1.0/(1<<20), 0), 0, false},
		{100, math.Nextafter(1<<20, inf), false}, {100, -1e30, false},
		{0, 0, false}, {-1, 0, false}, {1e40, 0, false}, {inf, 0, false}, {nan, 0, false},
		{100, nan, false}, {100, -inf, false},
	} {
		if err := CheckScale(c.scale, c.bias); (err == nil) != c.ok {
			t.Errorf("scale %g, bias %g: %v", c.scale, c.bias, err)
		}
	}
}

// At the largest scale, an error of 2^-20 in a cosine is one unit of a logit; at the smallest, the exponentials of the
// largest and the smallest logit differ by less than two of these errors.
func TestScaleLimitsAreThoseOfFloat32(t *testing.T) {
	const cosine = 1.0 / (1 << 20)
	if d := MaxScale * cosine; d != 1 {
		t.Errorf("an error of %g in a logit", d)
	}
	if d := math.Exp(MinScale) - math.Exp(-MinScale); d > 2.001*cosine {
		t.Errorf("exponentials are %g apart", d)
	}
}
