package allocation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

func NewShares(clients, lists int) []Shares {
	out := make([]Shares, clients)
	for i := range out {
		out[i] = make(Shares, lists)
	}
	return out
}

func Shuffle(index []int, rng *rand.Rand) {
	rng.Shuffle(len(index), func(i, j int) { index[i], index[j] = index[j], index[i] })
}

func PerClient(classes, clients int) int {
	return int(math.RoundToEven(float64(classes) / float64(clients)))
}

func Sorted(out []Shares) []Shares {
	for _, s := range out {
		for _, l := range s {
			slices.Sort(l)
		}
	}
	return out
}

// MaxTries returns how often a Dirichlet partition is drawn at most: 200 times, or fewer if one draw is large, so that
// all draws together take seconds.
func MaxTries(clients, classes int) int {
	const draws = 10_000_000
	return min(200, max(10, draws/max(1, clients*classes)))
}

// CheckFits returns an error if no partition can satisfy MinSize.
func (p Config) CheckFits(lists []List) error {
	first, last := lists[0], lists[len(lists)-1]
	if most := min(len(first.Index), len(last.Index)); p.MinSize > most/p.Clients {
		return fmt.Errorf("%d clients with %d examples each do not fit in %d training and %d test examples: lower "+
			"partition.clients or partition.min_size", p.Clients, p.MinSize, len(first.Index), len(last.Index))
	}
	return nil
}

// AssignParts assigns consecutive parts of the indices; the part of client c ends at ends[c].
func AssignParts(out []Shares, l int, index, ends []int) {
	start := 0
	for c, end := range ends {
		out[c][l] = append(out[c][l], index[start:end]...)
		start = end
	}
}

func AllHave(out []Shares, size int) bool {
	for _, s := range out {
		if len(s[0]) < size || len(s[len(s)-1]) < size {
			return false
		}
	}
	return true
}

// Boundaries returns the ends of the clients' parts of a list of n: int(cumulated share * n), and n for the last one.
func Boundaries(share []float64, n int) []int {
	out := make([]int, len(share))
	sum := 0.0
	for i, x := range share {
		sum += x
		out[i] = min(n, int(sum*float64(n)+1e-9)) // without 1e-9 0.1+0.2+0.7 of 10 is 9
	}
	out[len(out)-1] = n
	return out
}

// MaxOverlap limits the number of indices of kinds whose clients overlap.
const MaxOverlap = 100_000_000

func (j *Job) CheckShots() error {
	switch {
	case j.Shots < 1:
		return fmt.Errorf("every client draws its own few examples: set data.shots, or partition.kind: iid")
	case j.Set.Pool != nil:
		return fmt.Errorf("a pooled set has no training list to draw from: set data.split to given")
	case len(j.Lists[0].Index) > MaxOverlap/j.Clients:
		return fmt.Errorf("%d clients drawing from %d examples each need too much memory: lower partition.clients",
			j.Clients, len(j.Lists[0].Index))
	}
	return nil
}
