package partition

import (
	"fmt"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
)

// roundRobin assigns the indices to the clients in turn, beginning with client turn, and returns the next turn.
func roundRobin(out []allocation.Shares, l int, index []int, turn int) int {
	for _, i := range index {
		out[turn][l] = append(out[turn][l], i)
		turn = (turn + 1) % len(out)
	}
	return turn
}

// iid assigns the shuffled examples of one class after the other to the clients in turn. Sizes of clients, and their
// counts of any class, therefore differ by at most one.
func iid(lists []allocation.List, classes int, p Config, seed uint64) ([]allocation.Shares, error) {
	out := allocation.NewShares(p.Clients, len(lists))
	for l := range lists {
		rng := data.NewRand(seed, "iid", l)
		turn := 0
		for _, index := range lists[l].ByClass(classes) {
			allocation.Shuffle(index, rng)
			turn = roundRobin(out, l, index, turn)
		}
	}
	return allocation.Sorted(out), nil
}

// pathological shuffles the classes and assigns classes i*per to (i+1)*per to client i, and the rest to the last
// client. per is classes/clients rounded half to even (Python's round, as in the public few-shot code). The first share
// p.Repeat of the classes is split among all clients, and only the other classes have owners; then a client may own
// none.
func pathological(lists []allocation.List, classes int, p Config, seed uint64) ([]allocation.Shares, error) {
	common := int(p.Repeat * float64(classes))
	per := allocation.PerClient(classes-common, p.Clients)
	if common > 0 {
		per = max(per, 1)
	} else if per == 0 || per*(p.Clients-1) >= classes {
		n := p.Clients - 1
		for n > 1 && (allocation.PerClient(classes, n) == 0 || allocation.PerClient(classes, n)*(n-1) >= classes) {
			n--
		}
		return nil, fmt.Errorf("%d classes do not give each of %d clients a class of its own: lower "+
			"partition.clients (%d works), set partition.repeat or use another partition.kind",
			classes, p.Clients, max(n, 1))
	}
	out := allocation.NewShares(p.Clients, len(lists))
	order := data.NewRand(seed, "pathological").Perm(classes)
	for l := range lists {
		groups := lists[l].ByClass(classes)
		rng := data.NewRand(seed, "pathological/common", l)
		turn := 0
		for _, class := range order[:common] {
			allocation.Shuffle(groups[class], rng)
			turn = roundRobin(out, l, groups[class], turn)
		}
		for at, class := range order[common:] {
			owner := min(at/per, p.Clients-1)
			out[owner][l] = append(out[owner][l], groups[class]...)
		}
	}
	return allocation.Sorted(out), nil
}
