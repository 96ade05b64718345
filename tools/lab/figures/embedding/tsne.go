package embedding

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"
)

// Settings after van der Maaten and Hinton, "Visualizing Data using t-SNE" (JMLR 9, 2008), section 3.4, with the
// stronger and longer exaggeration, the learning rate n / exaggeration and the start at the principal components that
// later work found better (Belkina et al. 2019; Kobak and Berens 2019).
const (
	perplexity     = 30.0 // at most a third of the other rows
	iterations     = 1000
	exaggeration   = 12.0
	exaggerated    = 250 // iterations
	earlyMomentum  = 0.5
	finalMomentum  = 0.8
	smallestGain   = 0.01
	startDeviation = 1e-4
)

// TSNE maps rows [N, D] to the plane by exact t-SNE. Its time grows with the square of N. The Go libraries for t-SNE
// start from an unseeded generator, so their pictures are not reproducible.
func TSNE(rows [][]float64) ([][2]float64, error) { return tsne(rows, perplexity, iterations, 0) }

func tsne(rows [][]float64, perplexity float64, iterations int, seed uint64) ([][2]float64, error) {
	if _, err := check(rows, MaxRows); err != nil {
		return nil, err
	}

	n := len(rows)
	distances := squaredDistances(rows)
	start, err := components(distances, n)
	if err != nil || n < 4 { // too few for a perplexity
		return start, err
	}

	y := scatterStart(start, seed)
	descend(affinities(distances, n, min(perplexity, float64(n-1)/3)), y, iterations)
	return y, nil
}

// squaredDistances returns the matrix [N, N] of squared Euclidean distances, row by row.
func squaredDistances(rows [][]float64) []float64 {
	n := len(rows)
	distances := make([]float64, n*n)
	for i := range n {
		for j := range i {
			sum := 0.0
			for k, v := range rows[i] {
				diff := v - rows[j][k]
				sum += diff * diff
			}
			distances[i*n+j], distances[j*n+i] = sum, sum
		}
	}

	return distances
}

// components returns the scores of the first two principal components, computed from distances alone. They are the top
// eigenvectors of the doubly centred matrix -D/2 (classical scaling, Torgerson 1952). The cost is independent of the
// width of the rows.
func components(distances []float64, n int) ([][2]float64, error) {
	means, mean := make([]float64, n), 0.0
	for i := range n {
		for j := range n {
			means[i] += distances[i*n+j] / float64(n)
		}
		mean += means[i] / float64(n)
	}

	b := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			b.SetSym(i, j, -(distances[i*n+j]-means[i]-means[j]+mean)/2)
		}
	}

	var eigen mat.EigenSym
	if !eigen.Factorize(b, true) {
		return nil, fmt.Errorf("the eigenvalue decomposition of the distances did not converge")
	}

	var vectors mat.Dense
	eigen.VectorsTo(&vectors)
	values := eigen.Values(nil)
	out := make([][2]float64, n)
	for k := range min(2, n) {
		v := mat.Col(nil, n-1-k, &vectors) // eigenvalues ascend
		fixSign(v)
		for i := range out {
			out[i][k] = v[i] * math.Sqrt(max(0, values[n-1-k]))
		}
	}

	return out, nil
}

// scatterStart shrinks the scores to a small cloud and adds noise a hundred times smaller, which separates equal rows.
func scatterStart(scores [][2]float64, seed uint64) [][2]float64 {
	sum := 0.0
	for _, s := range scores {
		sum += s[0] * s[0] // the mean is 0
	}

	shrink := 0.0
	if sum > 0 {
		shrink = startDeviation / math.Sqrt(sum/float64(len(scores)))
	}

	random := rand.New(rand.NewPCG(seed, 0))
	y := make([][2]float64, len(scores))
	for i, s := range scores {
		for k := range y[i] {
			y[i][k] = s[k]*shrink + startDeviation/100*random.NormFloat64()
		}
	}

	return y
}

// descend minimises the divergence by gradient descent with momentum and a gain for every coordinate (section 3.4).
func descend(affinities []float64, points [][2]float64, iterations int) {
	n := len(points)
	rate := max(float64(n)/exaggeration/4, 50) // for a gradient with its factor 4
	speed, gain := make([][2]float64, n), make([][2]float64, n)
	for i := range gain {
		gain[i] = [2]float64{1, 1}
	}

	slope := make([][2]float64, n)
	early := min(exaggerated, iterations/2)
	for t := range iterations {
		more, momentum := 1.0, finalMomentum
		if t < early {
			more, momentum = exaggeration, earlyMomentum
		}

		gradient(affinities, points, more, slope)
		var centre [2]float64
		for i := range points {
			for k := range points[i] {
				if (slope[i][k] > 0) != (speed[i][k] > 0) {
					gain[i][k] += 0.2
				} else {
					gain[i][k] = max(smallestGain, 0.8*gain[i][k])
				}
				speed[i][k] = momentum*speed[i][k] - rate*gain[i][k]*slope[i][k]
				points[i][k] += speed[i][k]
				centre[k] += points[i][k] / float64(n)
			}
		}

		for i := range points {
			points[i][0] -= centre[0]
			points[i][1] -= centre[1]
		}
	}
}

// gradient computes the gradient of the divergence with respect to every point (Equation 5), with P multiplied by more.
func gradient(affinities []float64, points [][2]float64, more float64, slope [][2]float64) {
	n, total := len(points), 0.0 // the sum of all student weights
	for i := range n {
		for j := range i {
			total += 2 / (1 + squared(points[i], points[j]))
		}
	}

	clear(slope)
	for i := range n {
		for j := range i {
			w := 1 / (1 + squared(points[i], points[j]))
			f := 4 * (more*affinities[i*n+j] - w/total) * w
			for k := range 2 {
				d := f * (points[i][k] - points[j][k])
				slope[i][k] += d
				slope[j][k] -= d
			}
		}
	}
}

func squared(a, b [2]float64) float64 {
	dx, dy := a[0]-b[0], a[1]-b[1]
	return dx*dx + dy*dy
}
