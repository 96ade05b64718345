package figures

import (
	"math"
	"slices"
)

// Five are the numbers a box plot is drawn from, as matplotlib counts them by default: quartiles by linear
// interpolation, whiskers to the last value within 1.5 times the inner quartile range beyond the quartiles, and the
// values outside of them.
type Five struct {
	Low, Q1, Median, Q3, High float64
	Outliers                  []float64 // growing
}

// Summarise counts the five numbers of values that are numbers; false if there are none.
func Summarise(values []float64) (Five, bool) {
	var sorted []float64
	for _, v := range values {
		if usable(v) {
			sorted = append(sorted, v)
		}
	}
	if len(sorted) == 0 {
		return Five{}, false
	}
	slices.Sort(sorted)
	f := Five{Q1: percentile(sorted, 0.25), Median: percentile(sorted, 0.5), Q3: percentile(sorted, 0.75)}
	reach := 1.5 * (f.Q3 - f.Q1)
	f.Low, f.High = f.Q1, f.Q3 // matplotlib's too, where no value lies between a quartile and its fence
	for _, v := range sorted {
		switch {
		case v < f.Q1-reach || v > f.Q3+reach:
			f.Outliers = append(f.Outliers, v)
		default:
			f.Low, f.High = min(f.Low, v), max(f.High, v)
		}
	}
	return f, true
}

// percentile interpolates between the two values around place p (n - 1), as numpy.percentile does by default (type 7 of
// Hyndman and Fan 1996). gonum's stat.Quantile has other types only, and gonum/plot's box plot takes medians of halves.
func percentile(sorted []float64, p float64) float64 {
	place := p * float64(len(sorted)-1)
	i := int(math.Floor(place))
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	part := place - float64(i)
	return sorted[i] + part*(sorted[i+1]-sorted[i])
}
