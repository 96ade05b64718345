package partition

import (
	"math"
	"math/rand/v2"
	"slices"
)

// shares are the indices of one client in every list.
type shares [][]int

func newShares(clients, lists int) []shares {
	out := make([]shares, clients)
	for i := range out {
		out[i] = make(shares, lists)
	}
	return out
}

func shuffle(index []int, rng *rand.Rand) {
	rng.Shuffle(len(index), func(i, j int) { index[i], index[j] = index[j], index[i] })
}

// perClient is Python's round(classes/clients).
func perClient(classes, clients int) int {
	return int(math.RoundToEven(float64(classes) / float64(clients)))
}

func sorted(out []shares) []shares {
	for _, s := range out {
		for _, l := range s {
			slices.Sort(l)
		}
	}
	return out
}

// maxTries returns how often a Dirichlet partition is drawn at most: 200 times, or fewer if one draw is large, so that
// all draws together take seconds.
func maxTries(clients, classes int) int {
	const draws = 10_000_000
	return min(200, max(10, draws/max(1, clients*classes)))
}

// maxOverlap limits the number of indices of kinds whose clients overlap.
const maxOverlap = 100_000_000

// assignParts assigns consecutive parts of the indices of list l to clients; part i ends at ends[i] and belongs to
// client owners[i], or to client i if owners is nil.
func assignParts(out []shares, l int, owners, index, ends []int) {
	start := 0
	for i, end := range ends {
		c := i
		if owners != nil {
			c = owners[i]
		}
		out[c][l] = append(out[c][l], index[start:end]...)
		start = end
	}
}

// allHave reports whether all clients have size examples of the first and of the last list.
func allHave(out []shares, size int) bool {
	return !slices.ContainsFunc(out, func(s shares) bool { return len(s[0]) < size || len(s[len(s)-1]) < size })
}

// boundaries returns the ends of the clients' parts of a list of n: int(cumulated share * n), and n for the last one.
func boundaries(share []float64, n int) []int {
	out := make([]int, len(share))
	sum := 0.0
	for i, x := range share {
		sum += x
		out[i] = min(n, int(sum*float64(n)+1e-9)) // without 1e-9 0.1+0.2+0.7 of 10 is 9
	}
	out[len(out)-1] = n
	return out
}

// total adds up in order, so that a sum has the same bits everywhere.
func total[T int | float64](x []T) (sum T) {
	for _, v := range x {
		sum += v
	}
	return sum
}

// divide divides all elements by one number.
func divide(x []float64, by float64) {
	for i := range x {
		x[i] /= by
	}
}
