package page

import (
	"encoding/json"
	"math"
	"strconv"
)

// numbers is a list of values in the page's data block, with four significant digits each, and null for values that are
// not numbers.
type numbers []float64

// MarshalJSON encodes every value in its shortest form, rounded to four significant digits.
func (n numbers) MarshalJSON() ([]byte, error) {
	out := append(make([]byte, 0, 6*len(n)+2), '[')
	for i, v := range n {
		if i > 0 {
			out = append(out, ',')
		}
		switch a := math.Abs(v); {
		case !finite(v):
			out = append(out, "null"...)
		case a >= 1e4 && a < 1e15: // up to here 123500 is shorter than 1.235e+05, and exact
			unit := math.Pow(10, math.Floor(math.Log10(a))-3)
			out = strconv.AppendFloat(out, math.Round(v/unit)*unit, 'f', 0, 64)
		default:
			out = strconv.AppendFloat(out, v, 'g', 4, 64)
		}
	}
	return append(out, ']'), nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// list is a list of the page's data block: nil is written as [], because the script reads the length of every list.
type list[T any] []T

// MarshalJSON writes an array.
func (l list[T]) MarshalJSON() ([]byte, error) {
	if l == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]T(l))
}
