package metrics

import (
	"math"
	"slices"
)

// MeanStd is the mean and the population standard deviation.
func MeanStd(v []float64) (mean, std float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		std += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, math.Sqrt(std)
}

// WorstTenth is the mean over the ceil(n/10) lowest of n accuracies.
func WorstTenth(accuracies []float64) float64 {
	low := slices.Sorted(slices.Values(accuracies))
	mean, _ := MeanStd(low[:(len(low)+9)/10])
	return mean
}

// Harmonic is the harmonic mean of numbers that are not negative; 0 where one of them is.
func Harmonic(values ...float64) float64 {
	sum := 0.0
	for _, v := range values {
		if v == 0 {
			return 0
		}
		sum += 1 / v
	}
	return float64(len(values)) / sum
}
