package embedding

import "math"

// affinities returns the joint probabilities P [N, N] of t-SNE: the mean of p(j|i) and p(i|j), divided by N. Each row
// of conditional probabilities is a Gaussian over squared distances [N, N], whose width produces the perplexity (van
// der Maaten and Hinton 2008, Equation 1 and section 3.1).
func affinities(squaredDistances []float64, n int, perplexity float64) []float64 {
	conditional := make([]float64, n*n)
	for i := range n {
		calibrate(squaredDistances[i*n:(i+1)*n], i, perplexity, conditional[i*n:(i+1)*n])
	}

	p := make([]float64, n*n)
	for i := range n {
		for j := range n {
			p[i*n+j] = (conditional[i*n+j] + conditional[j*n+i]) / float64(2*n)
		}
	}

	return p
}

// calibrate computes the row of probabilities whose entropy is the logarithm of the perplexity, by bisection on the
// precision of the Gaussian. A row with several nearest neighbours at one distance may not reach this entropy. It gets
// the closest possible entropy.
func calibrate(distances []float64, self int, perplexity float64, row []float64) {
	nearest, farthest := math.Inf(1), 0.0
	for j, v := range distances {
		if j != self {
			nearest, farthest = min(nearest, v), max(farthest, v)
		}
	}

	// entropy returns the row's entropy at a precision; distances are relative to the nearest, which changes no
	// probability
	entropy := func(beta float64) float64 {
		sum, weighted := 0.0, 0.0
		for j, v := range distances {
			row[j] = 0
			if j != self {
				row[j] = math.Exp(-beta * (v - nearest))
				sum += row[j]
				weighted += row[j] * beta * (v - nearest)
			}
		}
		for j := range row {
			row[j] /= sum
		}
		return math.Log(sum) + weighted/sum
	}

	want := math.Log(perplexity)
	if !(farthest > nearest) {
		entropy(0)
		return
	}

	beta, low, high := 1/(farthest-nearest), 0.0, math.Inf(1)
	for range 300 {
		switch h := entropy(beta); {
		case h <= want:
			high = beta
		case math.IsInf(2*beta, 0):
			return
		default:
			low = beta
		}
		if beta = low + (high-low)/2; math.IsInf(high, 1) {
			beta = 2 * low
		}
	}

	entropy(beta)
}
