package partition

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"

	"gonum.org/v1/gonum/stat/distmv"
)

// tries bounds how often a Dirichlet partition is drawn anew: 200 times, fewer when one draw is large, so that the last
// comes within seconds.
func tries(clients, classes int) int {
	const draws = 10_000_000
	return min(200, max(10, draws/max(1, clients*classes)))
}

// dirichlet cuts the examples of every class by proportions p ~ Dirichlet(beta) over the clients, the same for all
// lists: list entry n of a class goes to the first client whose cumulated proportion, times the length, truncated, is
// above n. Unless p.Uncap, a client that has its 1/clients of the first list already gets proportion 0 (as in the
// FedOTP and FedPHA code). The draw is repeated, with another seed each time, until every client has p.MinSize examples
// of the first and of the last list; with p.Fill the last draw is then filled up.
func dirichlet(lists []list, classes int, p Config, seed uint64) ([]shares, error) {
	if err := p.fits(lists); err != nil {
		return nil, err
	}
	grouped := make([][][]int, len(lists))
	for l := range lists {
		grouped[l] = lists[l].byClass(classes)
	}
	most := tries(p.Clients, classes)
	for try := range most {
		out := newShares(p.Clients, len(lists))
		rng := data.Stream(seed, "dirichlet", try)
		for k := range classes {
			share := proportions(out, len(lists[0].index), p, rng)
			for l := range lists {
				index := slices.Clone(grouped[l][k])
				shuffle(index, rng)
				give(out, l, index, cuts(share, len(index)))
			}
		}
		if enough(out, p.MinSize) {
			return sorted(out), nil
		}
		if p.Fill && try == most-1 {
			fill(out, lists, classes, p.MinSize)
			return sorted(out), nil
		}
	}
	return nil, fmt.Errorf("none of %d draws with beta %g gave each of %d clients %d training and %d test examples: "+
		"raise partition.beta, lower partition.clients or partition.min_size, or set partition.fill",
		most, p.Beta, p.Clients, p.MinSize, p.MinSize)
}

// fits refuses minima that no partition can hold.
func (p Config) fits(lists []list) error {
	first, last := lists[0], lists[len(lists)-1]
	if most := min(len(first.index), len(last.index)); p.MinSize > most/p.Clients {
		return fmt.Errorf("%d clients with %d examples each do not fit in %d training and %d test examples: lower "+
			"partition.clients or partition.min_size",
			p.Clients, p.MinSize, len(first.index), len(last.index))
	}
	return nil
}

// give hands out consecutive parts of the indices, client c's up to ends[c].
func give(out []shares, l int, index, ends []int) {
	start := 0
	for c, end := range ends {
		out[c][l] = append(out[c][l], index[start:end]...)
		start = end
	}
}

func enough(out []shares, size int) bool {
	for _, s := range out {
		if len(s[0]) < size || len(s[len(s)-1]) < size {
			return false
		}
	}
	return true
}

// fill moves examples from the client that has most of a list to those with fewer than size, in the last list of a
// class that the client trains on where the giver has one. It ends, because size examples for each exist.
func fill(out []shares, lists []list, classes, size int) {
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
					trains[lists[0].label[i]] = true
				}
				list := out[from][l]
				at := len(list) - 1
				if l > 0 {
					at = max(slices.IndexFunc(list, func(i int) bool { return trains[lists[l].label[i]] }), 0)
				}
				out[c][l] = append(out[c][l], list[at])
				out[from][l] = slices.Delete(list, at, at+1)
			}
		}
	}
}

// proportions draws the share of every client in one class. total is the length of the first list.
func proportions(out []shares, total int, p Config, rng *rand.Rand) []float64 {
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
	// drawn uniformly; of those with room when there is a cap.
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

// symmetric is a draw from Dirichlet(beta) over n; its numbers may be NaN or all 0 where beta is tiny.
func symmetric(beta float64, n int, rng *rand.Rand) []float64 {
	alpha := make([]float64, n)
	for i := range alpha {
		alpha[i] = beta
	}
	return distmv.NewDirichlet(alpha, rng).Rand(nil)
}

// mix is symmetric with its limit for tiny beta: all mass on one of n, drawn uniformly.
func mix(beta float64, n int, rng *rand.Rand) []float64 {
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

// cuts are the ends of the clients' parts of a list of n: int(cumulated share * n), the last one n.
func cuts(share []float64, n int) []int {
	out := make([]int, len(share))
	sum := 0.0
	for i, x := range share {
		sum += x
		out[i] = min(n, int(sum*float64(n)+1e-9)) // without the dust, 0.1+0.2+0.7 of 10 is 9
	}
	out[len(out)-1] = n
	return out
}
