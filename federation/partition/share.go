package partition

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"
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

// deal hands the indices out one by one, beginning with client turn, and returns whose turn it is next.
func deal(out []shares, l int, index []int, turn int) int {
	for _, i := range index {
		out[turn][l] = append(out[turn][l], i)
		turn = (turn + 1) % len(out)
	}
	return turn
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
			turn = deal(out, l, index, turn)
		}
	}
	return sorted(out), nil
}

// pathological shuffles the classes and gives client i those from i*per to (i+1)*per, the last client the rest, where
// per is classes/clients rounded half to even (Python's round, as in the public few-shot code). The first p.Repeat of
// the classes are dealt out to all clients instead, and only the others have owners; then clients may go without.
func pathological(lists []list, classes int, p Config, seed uint64) ([]shares, error) {
	common := int(p.Repeat * float64(classes))
	per := perClient(classes-common, p.Clients)
	if common > 0 {
		per = max(per, 1)
	} else if per == 0 || per*(p.Clients-1) >= classes {
		n := p.Clients - 1
		for n > 1 && (perClient(classes, n) == 0 || perClient(classes, n)*(n-1) >= classes) {
			n--
		}
		return nil, fmt.Errorf("%d classes do not give each of %d clients a class of its own: lower "+
			"partition.clients (%d works), set partition.repeat or take another partition.kind",
			classes, p.Clients, max(n, 1))
	}
	out := newShares(p.Clients, len(lists))
	order := data.Stream(seed, "pathological").Perm(classes)
	for l := range lists {
		groups := lists[l].byClass(classes)
		rng := data.Stream(seed, "pathological/common", l)
		turn := 0
		for _, class := range order[:common] {
			shuffle(groups[class], rng)
			turn = deal(out, l, groups[class], turn)
		}
		for at, class := range order[common:] {
			owner := min(at/per, p.Clients-1)
			out[owner][l] = append(out[owner][l], groups[class]...)
		}
	}
	return sorted(out), nil
}

func perClient(classes, clients int) int {
	return int(math.RoundToEven(float64(classes) / float64(clients)))
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
