package embedding

import (
	"fmt"
	"math"
)

// Limits on the input: the time and the memory of t-SNE grow with the square of the rows.
const (
	MaxRows  = 3000
	maxWidth = 1 << 20
)

// check checks that all rows have one width and finite numbers only. It returns the width.
func check(rows [][]float64, most int) (int, error) {
	if len(rows) == 0 {
		return 0, fmt.Errorf("there are no rows")
	}

	width := len(rows[0])
	switch {
	case len(rows) > most:
		return 0, fmt.Errorf("%d rows are too many: give at most %d", len(rows), most)
	case width == 0 || width > maxWidth:
		return 0, fmt.Errorf("rows of %d numbers: give 1 to %d", width, maxWidth)
	}

	for i, r := range rows {
		if len(r) != width {
			return 0, fmt.Errorf("row %d has %d numbers, the first %d", i, len(r), width)
		}
		for j, v := range r {
			if !(math.Abs(v) < 1e100) {
				return 0, fmt.Errorf("element %d of row %d is %g, which is not finite", j, i, v)
			}
		}
	}

	return width, nil
}
