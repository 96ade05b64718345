package partition

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/pyrand"
	"promptfed/runtime/convert"
)

// drawShots draws k examples of every class among the given indices, by the seed, and returns them in ascending order.
// Classes with fewer examples keep all. labels belong to the whole list that index points into. Applied to the training
// part of each client, it is the k-shot selection of the few-shot split.
func drawShots(index, labels []int, k int, seed uint64) []int {
	var out []int
	for _, g := range groups(list{index, labels}) {
		shuffle(g.index, data.NewRand(seed, "shots", g.class))
		out = append(out, g.index[:min(k, len(g.index))]...)
	}

	slices.Sort(out)
	return out
}

// group holds the entries of one class of a list.
type group struct {
	class int
	index []int
}

// groups returns the classes of a list in the order of their first occurrence.
func groups(l list) []group {
	var out []group
	at := map[int]int{}
	for _, i := range l.index {
		k := l.label[i]
		if _, ok := at[k]; !ok {
			at[k] = len(out)
			out = append(out, group{class: k})
		}
		out[at[k]].index = append(out[at[k]].index, i)
	}

	return out
}

// pathological shuffles the classes and assigns classes i*per to (i+1)*per to client i, and the rest to the last
// client. per is classes/clients rounded half to even (Python's round, as in the public few-shot code). The first share
// j.Repeat of the classes is split among all clients, and only the other classes have owners; then a client may own
// none.
func pathological(j *job, seed uint64) ([]shares, error) {
	classes := len(j.set.Classes)
	common := int(j.Repeat * float64(classes))
	per := perClient(classes-common, j.Clients)
	if common > 0 {
		per = max(per, 1)
	} else if per == 0 || per*(j.Clients-1) >= classes {
		n := j.Clients - 1
		for n > 1 && (perClient(classes, n) == 0 || perClient(classes, n)*(n-1) >= classes) {
			n--
		}
		return nil, fmt.Errorf("%d classes do not give each of %d clients a class of its own: lower "+
			"partition.clients (%d works), set partition.repeat or use another partition.kind",
			classes, j.Clients, max(n, 1))
	}

	out := j.newShares()
	order := data.NewRand(seed, "pathological").Perm(classes)
	for l, groups := range j.byClass() {
		rng := data.NewRand(seed, "pathological/common", l)
		turn := 0
		for _, class := range order[:common] {
			shuffle(groups[class], rng)
			turn = roundRobin(out, l, groups[class], turn)
		}
		for at, class := range order[common:] {
			owner := min(at/per, j.Clients-1)
			out[owner][l] = append(out[owner][l], groups[class]...)
		}
	}

	return out, nil
}

// fewShotSeed seeds Python's generator in the few-shot split of the CoOp sets, whatever the experiment's seed.
const fewShotSeed = 2023

// fewShot is one run of generate_federated_fewshot_dataset or generate_federated_dataset: the classes of the clients,
// and the generator after it drew them.
type fewShot struct {
	*job
	rng     *pyrand.Python
	iid     bool    // every client holds every class
	common  []int   // classes that several clients hold
	classes [][]int // of every client, with the common ones first
	folds   int     // groups of clients that share common classes; 0: all clients share all of them
}

// codePathological is the few-shot split (data.shots of every class) or, without shots, the split USEALL of the public
// code.
func codePathological(j *job) ([]Client, error) { return codeFewShot(j, false) }

// codeIIDShots is the few-shot split with the option IID: every client draws from every class. The other lists are
// split class by class in rounded parts, so a few examples may be left over.
func codeIIDShots(j *job) ([]Client, error) {
	if err := j.checkShots(); err != nil {
		return nil, err
	}
	j.Repeat = 0
	return codeFewShot(j, true)
}

func codeFewShot(job *job, iid bool) ([]Client, error) {
	out := job.newShares()
	for l := range job.lists {
		f := &fewShot{job: job, rng: pyrand.NewPython(job.codeSeed), iid: iid}
		if err := f.shareClasses(job.lists[l]); err != nil {
			return nil, err
		}
		if l > 0 || job.shots < 1 || job.set.Pool != nil {
			f.deal(groups(job.lists[l]), l, out)
		} else if err := f.draw(groups(job.lists[l]), out); err != nil {
			return nil, err
		}
	}

	return job.newClients(out, "", 0), nil
}

// shareClasses shuffles the classes, which are those up to the largest label of the list, and assigns them to clients.
func (f *fewShot) shareClasses(l list) error {
	classes := 0
	for _, i := range l.index {
		classes = max(classes, l.label[i]+1)
	}

	order := f.rng.Permutation(classes)
	n := int(f.Repeat * float64(classes))
	f.common, order = order[:n], order[n:]
	if f.Repeat > 0 && f.shots < 1 {
		return fmt.Errorf("the public code divides by data.shots where classes are repeated: set data.shots")
	}

	var fold []int // of every client
	perFold := 0
	if f.Repeat > 0 && f.Clients/f.shots > 0 {
		f.folds = f.Clients / f.shots
		fold, perFold = f.foldClients(), perClient(n, f.folds)
	}

	per := perClient(len(order), f.Clients)
	for i := range f.Clients {
		own := slices.Clone(f.common)
		if f.folds > 0 {
			own = part(f.common, fold[i], f.folds, perFold)
		}
		f.classes = append(f.classes, append(own, part(order, i, f.Clients, per)...))
	}

	return nil
}

// part returns a copy of part i of n of the classes, which are per classes, or the rest in the last part; part -1 is
// empty.
func part(classes []int, i, n, per int) []int {
	to := (i + 1) * per
	if i == n-1 {
		to = len(classes)
	}
	return slices.Clone(slice(classes, max(i, 0)*per, to))
}

// foldClients shuffles the clients and returns the fold of each, of clients/folds clients; a client that rounding
// leaves over has -1.
func (f *fewShot) foldClients() []int {
	per := perClient(f.Clients, f.folds)
	out := make([]int, f.Clients)
	for at, c := range f.rng.Permutation(f.Clients) {
		out[c] = -1
		if at/per < f.folds {
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

// draw draws each client's few examples of its classes; of repeated classes, it draws shots/clients and at least one.
// Where no class is repeated, a class with fewer examples gives all.
func (f *fewShot) draw(gs []group, out []shares) error {
	for client := range out {
		for _, group := range gs {
			if !f.iid && !slices.Contains(f.classes[client], group.class) {
				continue
			}

			k := f.shots
			if slices.Contains(f.common, group.class) {
				k = max(1, f.shots/f.Clients)
			}

			got := group.index
			if len(got) >= k {
				got = data.Pick(got, f.rng.Sample(len(got), k)) // random.sample
			} else if f.Repeat > 0 {
				return fmt.Errorf("class %d has %d training examples, but %d are drawn of it: lower data.shots",
					group.class, len(got), k)
			}

			out[client][0] = append(out[client][0], got...)
		}
	}

	return nil
}

// deal assigns to each client the examples of its classes: all of them, or a part if the class is one of the client's
// first n classes, where n is the number of repeated classes (these may include classes that the client owns alone).
// The parts follow one drawn order of the class's examples; their length is the number of examples divided by clients
// (or by clients/folds), rounded.
func (f *fewShot) deal(gs []group, split int, out []shares) {
	orders := convert.Slice(gs, func(g group) []int { return f.rng.Permutation(len(g.index)) })
	for c := range out {
		own := f.classes[c]
		first := slice(own, 0, len(f.common))
		for n, g := range gs {
			switch {
			case f.iid || f.Repeat > 0 && slices.Contains(first, g.class):
				per := int(math.RoundToEven(float64(len(g.index)) / (float64(f.Clients) / float64(max(1, f.folds)))))
				out[c][split] = append(out[c][split], data.Pick(g.index, slice(orders[n], c*per, (c+1)*per))...)
			case slices.Contains(own, g.class):
				out[c][split] = append(out[c][split], g.index...)
			}
		}
	}
}
