package partition

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distmv"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
)

// dirichlet cuts the examples of every class by proportions p ~ Dirichlet(beta) over the clients, the same for all
// lists: list entry n of a class goes to the first client whose cumulated proportion, times the length, truncated, is
// above n. Unless p.Uncap, a client that already has its 1/clients of the first list gets proportion 0 (as in the code
// of FedOTP and FedPHA). The draw is repeated with a new seed until every client has p.MinSize examples of the first
// and of the last list; with p.Fill, the last draw is filled up.
func dirichlet(lists []allocation.List, classes int, p Config, seed uint64) ([]allocation.Shares, error) {
	if err := p.CheckFits(lists); err != nil {
		return nil, err
	}
	grouped := make([][][]int, len(lists))
	for l := range lists {
		grouped[l] = lists[l].ByClass(classes)
	}
	most := allocation.MaxTries(p.Clients, classes)
	for try := range most {
		out := allocation.NewShares(p.Clients, len(lists))
		rng := data.NewRand(seed, "dirichlet", try)
		for k := range classes {
			share := proportions(out, len(lists[0].Index), p, rng)
			for l := range lists {
				index := slices.Clone(grouped[l][k])
				allocation.Shuffle(index, rng)
				allocation.AssignParts(out, l, index, allocation.Boundaries(share, len(index)))
			}
		}
		if allocation.AllHave(out, p.MinSize) {
			return allocation.Sorted(out), nil
		}
		if p.Fill && try == most-1 {
			fill(out, lists, classes, p.MinSize)
			return allocation.Sorted(out), nil
		}
	}
	return nil, fmt.Errorf("none of %d draws with beta %g gave each of %d clients %d training and %d test examples: "+
		"raise partition.beta, lower partition.clients or partition.min_size, or set partition.fill",
		most, p.Beta, p.Clients, p.MinSize, p.MinSize)
}

// fill moves examples from the client with the most examples of a list to clients with fewer than size. In the last
// list it prefers examples of a class that the receiving client trains on. It terminates, because there are at least
// size examples for each client.
func fill(out []allocation.Shares, lists []allocation.List, classes, size int) {
	for _, l := range []int{0, len(lists) - 1} {
		for c := range out {
			for len(out[c][l]) < size {
				from := 0
				for d := range out {
					if len(out[d][l]) > len(out[from][l]) {
						from = d
					}
				}
				trains := make([]bool, classes)
				for _, i := range out[c][0] {
					trains[lists[0].Label[i]] = true
				}
				list := out[from][l]
				at := len(list) - 1
				if l > 0 {
					at = max(slices.IndexFunc(list, func(i int) bool { return trains[lists[l].Label[i]] }), 0)
				}
				out[c][l] = append(out[c][l], list[at])
				out[from][l] = slices.Delete(list, at, at+1)
			}
		}
	}
}

// proportions draws the share of every client in one class. total is the length of the first list.
func proportions(out []allocation.Shares, total int, p Config, rng *rand.Rand) []float64 {
	n := len(out)
	share := symmetric(p.Beta, n, rng)
	if !p.Uncap {
		for c := range share {
			if float64(len(out[c][0])) >= float64(total)/float64(n) {
				share[c] = 0
			}
		}
	}
	sum := 0.0
	for _, x := range share {
		sum += x
	}
	if sum > 0 && !math.IsInf(sum, 0) {
		for c := range share {
			share[c] /= sum
		}
		return share
	}
	// For tiny beta all draws underflow, or all mass lies on full clients. The limit of the distribution is one client
	// drawn uniformly; if there is a cap, among the clients with room.
	var free []int
	for c := range share {
		if p.Uncap || float64(len(out[c][0])) < float64(total)/float64(n) {
			free = append(free, c)
		}
		share[c] = 0
	}
	if len(free) == 0 {
		for c := range share {
			free = append(free, c)
		}
	}
	share[free[rng.IntN(len(free))]] = 1
	return share
}

// symmetric draws from Dirichlet(beta) over n; for tiny beta the numbers may be NaN or all 0.
func symmetric(beta float64, n int, rng *rand.Rand) []float64 {
	alpha := make([]float64, n)
	for i := range alpha {
		alpha[i] = beta
	}
	return distmv.NewDirichlet(alpha, rng).Rand(nil)
}

// dirichletOrOneHot is symmetric with the limit of the distribution for tiny beta: all mass on one of n, drawn
// uniformly.
func dirichletOrOneHot(beta float64, n int, rng *rand.Rand) []float64 {
	out := symmetric(beta, n, rng)
	sum := 0.0
	for _, x := range out {
		sum += x
	}
	if sum > 0.5 && sum < 1.5 {
		return out
	}
	clear(out)
	out[rng.IntN(n)] = 1
	return out
}
