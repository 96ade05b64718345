package partition

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"

	"gonum.org/v1/gonum/stat/distmv"
)

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

// iid deals the shuffled examples of one class after the other round the table, so that both the sizes of clients and
// their counts of any class differ by at most one.
func iid(lists []list, classes int, p Config, seed uint64) ([]shares, error) {
	out := newShares(p.Clients, len(lists))
	for l := range lists {
		rng := data.Stream(seed, "iid", l)
		turn := 0
		for _, index := range lists[l].byClass(classes) {
			shuffle(index, rng)
			for _, i := range index {
				out[turn][l] = append(out[turn][l], i)
				turn = (turn + 1) % p.Clients
			}
		}
	}
	return sorted(out), nil
}

// pathological shuffles the classes and gives client i those from i*per to (i+1)*per, the last client the rest, where
// per is classes/clients rounded half to even (Python's round, as in the public few-shot code).
func pathological(lists []list, classes int, p Config, seed uint64) ([]shares, error) {
	per := perClient(classes, p.Clients)
	if per == 0 || per*(p.Clients-1) >= classes {
		n := p.Clients - 1
		for n > 1 && (perClient(classes, n) == 0 || perClient(classes, n)*(n-1) >= classes) {
			n--
		}
		return nil, fmt.Errorf("%d classes do not give each of %d clients a class of its own: lower partition.clients (%d works) or take another partition.kind",
			classes, p.Clients, max(n, 1))
	}
	out := newShares(p.Clients, len(lists))
	order := data.Stream(seed, "pathological").Perm(classes)
	for l := range lists {
		groups := lists[l].byClass(classes)
		for at, class := range order {
			owner := min(at/per, p.Clients-1)
			out[owner][l] = append(out[owner][l], groups[class]...)
		}
	}
	return sorted(out), nil
}

func perClient(classes, clients int) int {
	return int(math.RoundToEven(float64(classes) / float64(clients)))
}

// tries bounds how often a Dirichlet partition is drawn anew.
const tries = 200

// dirichlet cuts the examples of every class by proportions p ~ Dirichlet(beta) over the clients, the same for all
// lists: list entry n of a class goes to the first client whose cumulated proportion, times the length, truncated, is
// above n. Unless p.Uncap, a client that has its 1/clients of the first list already gets proportion 0 (as in the
// FedOTP and FedPHA code). The draw is repeated, with another seed each time, until every client has p.MinSize examples
// of the first and of the last list.
func dirichlet(lists []list, classes int, p Config, seed uint64) ([]shares, error) {
	first, last := lists[0], lists[len(lists)-1]
	if need := p.MinSize * p.Clients; need > len(first.index) || need > len(last.index) {
		return nil, fmt.Errorf("%d clients with %d examples each do not fit in %d training and %d test examples: lower partition.clients or partition.min_size",
			p.Clients, p.MinSize, len(first.index), len(last.index))
	}
	grouped := make([][][]int, len(lists))
	for l := range lists {
		grouped[l] = lists[l].byClass(classes)
	}
	for try := range tries {
		out := newShares(p.Clients, len(lists))
		rng := data.Stream(seed, "dirichlet", try)
		for k := range classes {
			share := proportions(out, len(first.index), p, rng)
			for l := range lists {
				index := slices.Clone(grouped[l][k])
				shuffle(index, rng)
				start := 0
				for c, end := range cuts(share, len(index)) {
					out[c][l] = append(out[c][l], index[start:end]...)
					start = end
				}
			}
		}
		enough := true
		for _, s := range out {
			enough = enough && len(s[0]) >= p.MinSize && len(s[len(s)-1]) >= p.MinSize
		}
		if enough {
			return sorted(out), nil
		}
	}
	return nil, fmt.Errorf("none of %d draws with beta %g gave each of %d clients %d training and %d test examples: raise partition.beta, lower partition.clients or partition.min_size",
		tries, p.Beta, p.Clients, p.MinSize, p.MinSize)
}

// proportions draws the share of every client in one class. total is the length of the first list.
func proportions(out []shares, total int, p Config, rng *rand.Rand) []float64 {
	n := len(out)
	alpha := make([]float64, n)
	for i := range alpha {
		alpha[i] = p.Beta
	}
	share := distmv.NewDirichlet(alpha, rng).Rand(nil)
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

// cut splits what a client has of the pool into 60 % train, 20 % val and 20 % test (FedAPPR), in random order.
func (c *Client) cut(index []int, rng *rand.Rand) {
	index = slices.Clone(index)
	shuffle(index, rng)
	a, b := len(index)*6/10, len(index)*8/10
	c.Train, c.Val, c.Test = index[:a:a], index[a:b:b], index[b:]
	for _, l := range [][]int{c.Train, c.Val, c.Test} {
		slices.Sort(l)
	}
}

func sorted(out []shares) []shares {
	for _, s := range out {
		for _, l := range s {
			slices.Sort(l)
		}
	}
	return out
}

// FewShot keeps k examples of every class that occurs among the given indices, drawn by the seed, in ascending order;
// classes with fewer keep what they have, and k = 0 keeps all. labels belong to the whole list that index points into.
// Called on the training part of each client, it is the k-shot selection of the few-shot split.
func FewShot(index, labels []int, k int, seed uint64) []int {
	if k <= 0 {
		return slices.Clone(index)
	}
	groups := map[int][]int{}
	for _, i := range index {
		groups[labels[i]] = append(groups[labels[i]], i)
	}
	var out []int
	for class, g := range groups {
		shuffle(g, data.Stream(seed, "shots", class))
		out = append(out, g[:min(k, len(g))]...)
	}
	slices.Sort(out)
	return out
}
