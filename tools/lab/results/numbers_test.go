package results

import (
	"math"
	"testing"

	"promptfed/runtime/goldentest"
)

func TestNumbers(t *testing.T) {
	nan := math.NaN()
	got := goldentest.JSON(t, Numbers{83.12345, 100, 0.000123456, nan, -2.5, 12345678, 99995, math.Inf(1), 1e20, 0})
	// Four significant digits, computed by hand; 99995 rounds up to five digits.
	const want = `[83.12,100,0.0001235,null,-2.5,12350000,100000,null,1e+20,0]`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
