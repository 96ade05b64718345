package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"promptfed/runtime/convert"
)

// exactRanks is the largest number of differences for the exact distribution of the rank sum, including ties.
const exactRanks = 200

// Test is the outcome of a test of the hypothesis that paired values do not differ.
type Test struct {
	Statistic float64
	P         float64 // two-sided; NaN for an undefined test
}

// SignedRank returns Wilcoxon's signed-rank test (Biometrics Bulletin 1, 1945) of differences. Zeros are dropped, as in
// the paper. Equal differences share their mean rank. The statistic is the smaller of the two rank sums. For up to 200
// differences p is exact: it uses the distribution of the rank sum over all signs of these ranks. Above 200 it uses the
// normal distribution, with the variance corrected for ties and without continuity correction. p is 1 without any
// difference.
//
// Neither gonum/stat nor go-moremath/stats has this test.
func SignedRank(d []float64) Test {
	ranks, plus, ties := signedRanks(d)
	n := len(ranks)
	if n == 0 {
		return Test{P: 1}
	}

	less := min(plus, n*(n+1)-plus)
	out := Test{Statistic: float64(less) / 2}
	if n <= exactRanks {
		out.P = min(1, 2*atMost(less, ranks))
		return out
	}

	m := float64(n)
	variance := m*(m+1)*(2*m+1)/24 - ties/48
	out.P = min(1, 2*distuv.UnitNormal.CDF((out.Statistic-m*(m+1)/4)/math.Sqrt(variance)))
	return out
}

// RankBiserial returns the matched-pairs rank-biserial correlation (Kerby 2014): the positive share of the rank sum
// minus the negative share, from -1 to 1.
func RankBiserial(d []float64) float64 {
	ranks, plus, _ := signedRanks(d)
	if len(ranks) == 0 {
		return 0
	}
	return 2*float64(plus)/float64(len(ranks)*(len(ranks)+1)) - 1
}

// signedRanks returns twice the ranks of the absolute differences other than 0, ascending, the sum of the doubled ranks
// of positive differences, and the sum of t^3-t over groups of t equal sizes.
func signedRanks(d []float64) (ranks []int, plus int, ties float64) {
	d = slices.DeleteFunc(slices.Clone(d), func(v float64) bool { return v == 0 })
	sizes := convert.Slice(d, math.Abs)
	ranks, ties = doubledRanks(sizes)
	for i, v := range d {
		if v > 0 {
			plus += ranks[i]
		}
	}

	slices.Sort(ranks)
	return ranks, plus, ties
}

// doubledRanks returns twice the rank of each value from the lowest, where equal values share their mean rank (doubled
// ranks are whole numbers, even for ties), and the sum of t^3-t over groups of t equal values.
func doubledRanks(values []float64) (_ []int, ties float64) {
	ranks, sorted := make([]int, len(values)), slices.Sorted(slices.Values(values))
	for i, v := range values {
		lower, _ := slices.BinarySearch(sorted, v)
		upper, _ := slices.BinarySearch(sorted, math.Nextafter(v, math.Inf(1)))
		ranks[i] = lower + upper + 1
		t := float64(upper - lower)
		ties += t*t - 1 // the part of each of the t values
	}

	return ranks, ties
}

// atMost returns the probability that the sum of the positive ranks is at most s, if each rank is positive with
// probability 1/2.
func atMost(s int, ranks []int) float64 {
	chances := make([]float64, s+1) // by sum; greater sums are unnecessary
	chances[0] = 1
	for _, r := range ranks {
		for i := s; i >= 0; i-- {
			chances[i] /= 2
			if i >= r {
				chances[i] += chances[i-r] / 2
			}
		}
	}

	sum := 0.0
	for _, v := range chances {
		sum += v
	}

	return sum
}
