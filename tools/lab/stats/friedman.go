package stats

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat/distuv"
)

// Ranking is Friedman's test of k treatments in N blocks, such as methods on tasks, after Demsar (JMLR 7, 2006): the
// treatments are ranked in each block, and the test asks whether their mean ranks could be those of treatments alike.
type Ranking struct {
	Ranks              [][]float64 // by block and treatment: 1 is the highest value, equal values share a mean rank
	Mean               []float64   // by treatment, over blocks
	ChiSquare          Test        // Friedman's statistic, corrected for ties; N (k-1) is the most it can be
	ImanDavenport      Test        // their F of it, which is less conservative; NaN where every block agrees
	CriticalDifference float64     // Nemenyi's critical difference of two mean ranks, at 0.05
}

// Friedman ranks values by block and treatment, of which there must be two or more each. Where treatments are equal in
// every block both tests are NaN.
//
// Written here since gonum/stat and go-moremath/stats have neither the test nor the studentized range.
func Friedman(values [][]float64) Ranking {
	n, k := float64(len(values)), float64(len(values[0]))
	out := Ranking{Mean: make([]float64, len(values[0])), ChiSquare: Test{math.NaN(), math.NaN()},
		ImanDavenport:      Test{math.NaN(), math.NaN()},
		CriticalDifference: CriticalDifference(len(values[0]), len(values), 0.05)}
	ties := 0.0
	for _, block := range values {
		ranks, t := descendingRanks(block)
		out.Ranks, ties = append(out.Ranks, ranks), ties+t
		for i, r := range ranks {
			out.Mean[i] += r / n
		}
	}
	correction := 1 - ties/(n*k*(k*k-1))
	if correction <= 0 {
		return out
	}
	squares := 0.0
	for _, r := range out.Mean {
		squares += (r - (k+1)/2) * (r - (k+1)/2)
	}
	chi := 12 * n / (k * (k + 1)) * squares / correction
	out.ChiSquare = Test{chi, distuv.ChiSquared{K: k - 1}.Survival(chi)}
	if rest := n*(k-1) - chi; rest > 1e-9*chi {
		f := (n - 1) * chi / rest
		out.ImanDavenport = Test{f, distuv.F{D1: k - 1, D2: (k - 1) * (n - 1)}.Survival(f)}
	}
	return out
}

// descendingRanks returns ranks from the highest value, 1, down, and the sum of t^3-t over groups of t equal values.
func descendingRanks(values []float64) (ranks []float64, ties float64) {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[b], values[a]) })
	ranks = make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		t, shared := float64(j-i), float64(i+j+1)/2
		ties += t*t*t - t
		for ; i < j; i++ {
			ranks[order[i]] = shared
		}
	}
	return ranks, ties
}

// CriticalDifference is Nemenyi's: two of k mean ranks over n blocks differ at level alpha where they are further apart
// than q sqrt(k(k+1)/(6n)), q being the studentized range of k means with infinite degrees of freedom over sqrt(2)
// (Demsar 2006, section 3.2.2; its table 5 has q for k up to 10).
func CriticalDifference(k, n int, alpha float64) float64 {
	m := float64(k)
	return studentizedRange(m, alpha) / math.Sqrt2 * math.Sqrt(m*(m+1)/(6*float64(n)))
}

// studentizedRange is the value that the range of k standard normal numbers exceeds with probability alpha. The
// distribution of the range is k times the integral over z of phi(z) (Phi(z+q) - Phi(z))^(k-1), z being the smallest of
// the numbers.
func studentizedRange(k, alpha float64) float64 {
	normal := distuv.UnitNormal
	atMost := func(q float64) float64 {
		return k * quad.Fixed(func(z float64) float64 {
			return normal.Prob(z) * math.Pow(normal.CDF(z+q)-normal.CDF(z), k-1)
		}, -9, 9, 400, quad.Legendre{}, 1)
	}
	low, high := 0.0, 16.0
	for range 60 {
		if mid := (low + high) / 2; atMost(mid) < 1-alpha {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
