package results

import (
	"math"
	"strconv"
)

// Numbers is a list of values for a page. JSON has four significant digits of each, and null for values that are not
// numbers.
type Numbers []float64

// MarshalJSON encodes every value in its shortest form, rounded to four significant digits.
func (n Numbers) MarshalJSON() ([]byte, error) {
	out := append(make([]byte, 0, 6*len(n)+2), '[')
	for i, value := range n {
		if i > 0 {
			out = append(out, ',')
		}
		switch a := math.Abs(value); {
		case math.IsNaN(value), math.IsInf(value, 0):
			out = append(out, "null"...)
		case a >= 1e4 && a < 1e15: // up to here 123500 is shorter than 1.235e+05, and exact
			unit := math.Pow(10, math.Floor(math.Log10(a))-3)
			out = strconv.AppendFloat(out, math.Round(value/unit)*unit, 'f', 0, 64)
		default:
			out = strconv.AppendFloat(out, value, 'g', 4, 64)
		}
	}

	return append(out, ']'), nil
}
