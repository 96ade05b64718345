package partition

import (
	"math"
	"slices"
	"testing"
)

// TestEnds by hand: numpy.array_split(7 into 3) has 3, 2, 2; int(cumsum([.1,.2,.7])*10) is 1, 3 (0.30000000000000004),
// and the eighth of cumsum(ten times .1)*10 is 7.999999999999999 (as NumPy prints); with NaN the last client gets
// everything.
func TestEnds(t *testing.T) {
	if got := evenEnds(7, 3); !slices.Equal(got, []int{3, 5, 7}) {
		t.Errorf("evenEnds %v", got)
	}
	if got := partEnds([]float64{0.1, 0.2, 0.7}, 10, 0); !slices.Equal(got, []int{1, 3, 10}) {
		t.Errorf("truncatedEnds %v", got)
	}
	if got := partEnds(slices.Repeat([]float64{0.1}, 10), 10, 0); !slices.Equal(got, []int{1, 2, 3, 4, 5, 6, 7, 7, 9,
		10}) {
		t.Errorf("truncatedEnds %v", got)
	}
	nan := math.NaN()
	if got := partEnds([]float64{nan, nan, nan}, 10, 0); !slices.Equal(got, []int{0, 0, 10}) {
		t.Errorf("truncatedEnds of NaN %v", got)
	}
}
