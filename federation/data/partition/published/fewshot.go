package published

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/data/partition/internal/allocation"
	"promptfed/federation/data/partition/pyrand"
)

// fewShotSeed seeds Python's generator in the few-shot split of the CoOp sets, whatever the experiment's seed.
const fewShotSeed = 2023

// group holds the entries of one class of a list.
type group struct {
	class int
	index []int
}

// groups returns the classes of a list in the order of their first occurrence.
func groups(l allocation.List) []group {
	var out []group
	at := map[int]int{}
	for _, i := range l.Index {
		k := l.Label[i]
		if _, ok := at[k]; !ok {
			at[k] = len(out)
			out = append(out, group{class: k})
		}
		out[at[k]].index = append(out[at[k]].index, i)
	}
	return out
}

// fewShot is one run of generate_federated_fewshot_dataset or generate_federated_dataset: the classes of the clients,
// and the generator after it drew them.
type fewShot struct {
	rng     *pyrand.Python
	common  []int   // classes that several clients hold
	classes [][]int // of every client, with the common ones first
	folds   int     // groups of clients that share common classes; 0: all clients share all of them
}

// shareClasses seeds the generator, shuffles the classes, which are those up to the largest label of the list, and
// assigns them to clients.
func shareClasses(j *allocation.Job, l allocation.List) (*fewShot, error) {
	rng := pyrand.NewPython(seedOr(j, fewShotSeed))
	classes, clients := 0, j.Clients
	for _, i := range l.Index {
		classes = max(classes, l.Label[i]+1)
	}
	order := make([]int, classes)
	for i := range order {
		order[i] = i
	}
	pyrand.Shuffle(rng, order)
	f := &fewShot{rng: rng, classes: make([][]int, clients)}
	n := int(j.Repeat * float64(classes))
	f.common, order = order[:n], order[n:]
	var fold []int // of every client
	perFold := 0
	if j.Repeat > 0 {
		if j.Shots < 1 {
			return nil, fmt.Errorf("the public code divides by data.shots where classes are repeated: set data.shots")
		}
		if f.folds = clients / j.Shots; f.folds > 0 {
			fold, perFold = foldClients(j, rng, f.folds), allocation.PerClient(n, f.folds)
		}
	}
	per := allocation.PerClient(len(order), clients)
	for i := range f.classes {
		var own []int
		switch {
		case f.folds > 0:
			if k := fold[i]; k >= 0 {
				to := (k + 1) * perFold
				if k == f.folds-1 {
					to = n
				}
				own = append(own, slice(f.common, k*perFold, to)...)
			}
		default:
			own = append(own, f.common...)
		}
		to := (i + 1) * per
		if i == clients-1 {
			to = len(order)
		}
		f.classes[i] = append(own, slice(order, i*per, to)...)
	}
	return f, nil
}

// foldClients shuffles the clients and returns the fold of each, of clients/folds clients; a client that rounding
// leaves over has -1.
func foldClients(j *allocation.Job, rng *pyrand.Python, folds int) []int {
	order := make([]int, j.Clients)
	for i := range order {
		order[i] = i
	}
	pyrand.Shuffle(rng, order)
	per := allocation.PerClient(j.Clients, folds)
	out := make([]int, j.Clients)
	for at, c := range order {
		out[c] = -1
		if at/per < folds {
			out[c] = at / per
		}
	}
	return out
}

// slice is Python's s[from:to] for non-negative numbers.
func slice(s []int, from, to int) []int {
	to = min(to, len(s))
	return s[min(from, to):to]
}

// sample is random.sample(index, k). If there are fewer than k and few is set, it returns all.
func (f *fewShot) sample(g group, k int, few bool) ([]int, error) {
	if len(g.index) < k {
		if few {
			return g.index, nil
		}
		return nil, fmt.Errorf("class %d has %d training examples, but %d are drawn of it: lower data.shots", g.class,
			len(g.index), k)
	}
	return pyrand.Sample(f.rng, g.index, k), nil
}

// orders draws an order of each group's entries. If several clients hold the class, they get parts of this order.
func (f *fewShot) orders(gs []group) [][]int {
	out := make([][]int, len(gs))
	for n, g := range gs {
		order := make([]int, len(g.index))
		for i := range order {
			order[i] = i
		}
		pyrand.Shuffle(f.rng, order)
		out[n] = order
	}
	return out
}

// part returns client i's part of a group in the given order. The length of a part is the length of the group divided
// by clients (or by clients/folds), rounded.
func (f *fewShot) part(g group, order []int, i, clients int) []int {
	per := allocation.PerClient(len(g.index), clients)
	if f.folds > 0 {
		per = int(math.RoundToEven(float64(len(g.index)) / (float64(clients) / float64(f.folds))))
	}
	return pick(g.index, slice(order, i*per, (i+1)*per))
}

// Pathological is the few-shot split (data.shots of every class) or, without shots, the split USEALL of the public
// code.
func Pathological(j *allocation.Job) ([]allocation.Client, error) {
	out := allocation.NewShares(j.Clients, len(j.Lists))
	for l := range j.Lists {
		f, err := shareClasses(j, j.Lists[l])
		if err != nil {
			return nil, err
		}
		gs := groups(j.Lists[l])
		if l == 0 && j.Shots > 0 && j.Set.Pool == nil {
			err = drawShots(j, f, gs, out)
		} else {
			dealClasses(j, f, gs, l, out)
		}
		if err != nil {
			return nil, err
		}
	}
	return j.NewClients(allocation.Sorted(out), "", 0), nil
}

// drawShots draws each client's few examples of its classes; of repeated classes, it draws shots/clients and at least
// one.
func drawShots(j *allocation.Job, f *fewShot, gs []group, out []allocation.Shares) error {
	for c := range out {
		for _, g := range gs {
			if !slices.Contains(f.classes[c], g.class) {
				continue
			}
			k := j.Shots
			if slices.Contains(f.common, g.class) {
				k = max(1, j.Shots/j.Clients)
			}
			got, err := f.sample(g, k, j.Repeat == 0)
			if err != nil {
				return err
			}
			out[c][0] = append(out[c][0], got...)
		}
	}
	return nil
}

// dealClasses assigns to each client the examples of its classes: all of them, or a part if the class is one of the
// client's first n classes, where n is the number of repeated classes (these may include classes that the client owns
// alone).
func dealClasses(j *allocation.Job, f *fewShot, gs []group, l int, out []allocation.Shares) {
	orders := f.orders(gs)
	for c := range out {
		own := f.classes[c]
		first := slice(own, 0, len(f.common))
		for n, g := range gs {
			switch {
			case !slices.Contains(own, g.class):
			case j.Repeat > 0 && slices.Contains(first, g.class):
				out[c][l] = append(out[c][l], f.part(g, orders[n], c, j.Clients)...)
			default:
				out[c][l] = append(out[c][l], g.index...)
			}
		}
	}
}

// IIDShots is the few-shot split with the option IID: every client draws from every class. The other lists are split
// class by class in rounded parts, so a few examples may be left over.
func IIDShots(j *allocation.Job) ([]allocation.Client, error) {
	if err := j.CheckShots(); err != nil {
		return nil, err
	}
	j.Repeat = 0
	out := allocation.NewShares(j.Clients, len(j.Lists))
	for l := range j.Lists {
		f, err := shareClasses(j, j.Lists[l])
		if err != nil {
			return nil, err
		}
		gs := groups(j.Lists[l])
		if l > 0 {
			orders := f.orders(gs)
			for c := range out {
				for n, g := range gs {
					out[c][l] = append(out[c][l], f.part(g, orders[n], c, j.Clients)...)
				}
			}
			continue
		}
		for c := range out {
			for _, g := range gs {
				got, err := f.sample(g, j.Shots, true)
				if err != nil {
					return nil, err
				}
				out[c][l] = append(out[c][l], got...)
			}
		}
	}
	return j.NewClients(allocation.Sorted(out), "", 0), nil
}
