package stats

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat/distuv"
)

// Ranking is Friedman's test of k treatments in N blocks, such as methods on tasks, after Demsar (JMLR 7, 2006). The
// treatments are ranked in each block. The null hypothesis is that all treatments are equal.
type Ranking struct {
	Ranks              [][]float64 // [block][treatment]: 1 is the highest value, equal values share a mean rank
	Mean               []float64   // by treatment, over blocks
	ChiSquare          Test        // Friedman's statistic, corrected for ties; at most N (k-1)
	ImanDavenport      Test        // their F statistic, less conservative than ChiSquare; NaN if all blocks agree
	CriticalDifference float64     // Nemenyi's critical difference of two mean ranks at level 0.05
}

// Friedman ranks values by block and treatment. It needs at least two blocks and two treatments. Both tests are NaN if
// the treatments are equal in every block.
//
// Neither gonum/stat nor go-moremath/stats has this test or the studentized range.
func Friedman(values [][]float64) Ranking {
	blocks, treatments := float64(len(values)), float64(len(values[0]))
	out := Ranking{Mean: make([]float64, len(values[0])), ChiSquare: Test{math.NaN(), math.NaN()},
		ImanDavenport:      Test{math.NaN(), math.NaN()},
		CriticalDifference: CriticalDifference(len(values[0]), len(values), 0.05)}
	ties := 0.0
	for _, block := range values {
		doubled, t := doubledRanks(block)
		ranks := make([]float64, len(block))
		for i, r := range doubled {
			ranks[i] = treatments + 1 - float64(r)/2
			out.Mean[i] += ranks[i] / blocks
		}
		out.Ranks, ties = append(out.Ranks, ranks), ties+t
	}

	correction := 1 - ties/(blocks*treatments*(treatments*treatments-1))
	if correction <= 0 {
		return out
	}

	squares := 0.0
	for _, r := range out.Mean {
		squares += (r - (treatments+1)/2) * (r - (treatments+1)/2)
	}

	chi := 12 * blocks / (treatments * (treatments + 1)) * squares / correction
	out.ChiSquare = Test{chi, distuv.ChiSquared{K: treatments - 1}.Survival(chi)}
	if rest := blocks*(treatments-1) - chi; rest > 1e-9*chi {
		f := (blocks - 1) * chi / rest
		out.ImanDavenport = Test{f, distuv.F{D1: treatments - 1, D2: (treatments - 1) * (blocks - 1)}.Survival(f)}
	}

	return out
}

// CriticalDifference returns Nemenyi's critical difference. Two of k mean ranks over n blocks differ at level alpha if
// their distance exceeds q sqrt(k(k+1)/(6n)). Here q is the studentized range of k means with infinite degrees of
// freedom, divided by sqrt(2) (Demsar 2006, section 3.2.2; its table 5 has q for k up to 10).
func CriticalDifference(k, n int, alpha float64) float64 {
	m := float64(k)
	return studentizedRange(m, alpha) / math.Sqrt2 * math.Sqrt(m*(m+1)/(6*float64(n)))
}

// studentizedRange returns the value that the range of k standard normal numbers exceeds with probability alpha. The
// distribution of the range is k times the integral over z of phi(z) (Phi(z+q) - Phi(z))^(k-1), where z is the smallest
// number.
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
