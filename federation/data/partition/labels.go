package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
)

// labelUniform cuts every class among its owners by shares drawn from U(0.4, 0.6) and normalised, the same for all
// lists.
func labelUniform(lists []allocation.List, classes int, p Config, seed uint64) ([]allocation.Shares, error) {
	return labelSkew(lists, classes, p, seed, func(rng *rand.Rand) float64 { return 0.4 + 0.2*rng.Float64() })
}

// labelClasses cuts every class among its owners evenly.
func labelClasses(lists []allocation.List, classes int, p Config, seed uint64) ([]allocation.Shares, error) {
	return labelSkew(lists, classes, p, seed, func(*rand.Rand) float64 { return 1 })
}

// labelSkew assigns p.Classes classes to every client, so that the numbers of owners of classes differ by at most one,
// and cuts the shuffled examples of a class among its owners by weights. A class without owner is an error.
func labelSkew(lists []allocation.List, classes int, p Config, seed uint64,
	weight func(*rand.Rand) float64) ([]allocation.Shares, error) {
	if p.Clients*p.Classes < classes {
		return nil, fmt.Errorf("%d clients with %d classes each leave some of the %d classes without a client: raise "+
			"partition.classes or partition.clients", p.Clients, p.Classes, classes)
	}
	rng := data.NewRand(seed, "owned")
	owners := owners(p.Clients, p.Classes, classes, rng)
	grouped := make([][][]int, len(lists))
	for l := range lists {
		grouped[l] = lists[l].ByClass(classes)
	}
	out := allocation.NewShares(p.Clients, len(lists))
	for k, own := range owners {
		share := make([]float64, len(own))
		sum := 0.0
		for i := range share {
			share[i] = weight(rng)
			sum += share[i]
		}
		for i := range share {
			share[i] /= sum
		}
		for l := range lists {
			index := grouped[l][k]
			allocation.Shuffle(index, rng)
			start := 0
			for i, end := range allocation.Boundaries(share, len(index)) {
				out[own[i]][l] = append(out[own[i]][l], index[start:end]...)
				start = end
			}
		}
	}
	return allocation.Sorted(out), nil
}

// owners returns the clients of every class. Each client in turn takes the classes with the most places left, with ties
// in random order, so no client takes a class twice.
func owners(clients, each, classes int, rng *rand.Rand) [][]int {
	left := make([]int, classes)
	for i, k := range rng.Perm(classes) {
		left[k] = clients * each / classes
		if i < clients*each%classes {
			left[k]++
		}
	}
	out := make([][]int, classes)
	for c := range clients {
		order := rng.Perm(classes)
		slices.SortStableFunc(order, func(a, b int) int { return left[b] - left[a] })
		for _, k := range order[:each] {
			left[k]--
			out[k] = append(out[k], c)
		}
	}
	return out
}
