package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/pyrand"
	"promptfed/runtime/tensor"
)

// place is an example by its list and its index in the split, with its label.
type place struct{ list, index, label int }

// join returns the examples of some lists, in order.
func (j *job) join(lists []int) (all []place) {
	for _, l := range lists {
		for _, i := range j.lists[l].index {
			all = append(all, place{l, i, j.lists[l].label[i]})
		}
	}
	return all
}

// assign assigns an example to a client.
func (p place) assign(to shares) { to[p.list] = append(to[p.list], p.index) }

// pachinko lets one client after the other draw examples from all lists together. Each draw takes a superclass from the
// client's Dirichlet(beta) over the remaining superclasses, a class from its Dirichlet(fine_beta) over the superclass's
// remaining classes, and an example of the class uniformly. All clients draw the same number; if it does not divide,
// the first clients draw one more.
func pachinko(job *job) ([]Client, error) {
	rng := data.NewRand(job.seed, "pachinko")
	all := job.join(tensor.Indices(len(job.lists)))
	left := make([][]int, len(job.set.Classes))
	for i, e := range all {
		left[e.label] = append(left[e.label], i)
	}

	fine := make([][]int, len(job.set.Superclasses))
	for k, c := range job.set.Coarse {
		if len(left[k]) > 0 {
			fine[c] = append(fine[c], k)
		}
	}

	out := job.newShares()
	for client := range out {
		mass := make([]float64, len(fine)) // 0 for superclasses without remaining examples
		inside := make([][]float64, len(fine))
		var open []int
		for s, f := range fine {
			if len(f) > 0 {
				open = append(open, s)
				inside[s] = dirichletOrOneHot(job.FineBeta, len(f), rng)
			}
		}

		if len(open) == 0 {
			break
		}

		for i, w := range dirichletOrOneHot(job.Beta, len(open), rng) {
			mass[open[i]] = w
		}

		size := len(all) / job.Clients
		if client < len(all)%job.Clients {
			size++
		}

		for range size {
			s := category(mass, func(s int) bool { return len(fine[s]) > 0 }, rng)
			at := category(inside[s], func(int) bool { return true }, rng)
			k := fine[s][at]
			n, last := rng.IntN(len(left[k])), len(left[k])-1
			all[left[k][n]].assign(out[client])
			left[k][n] = left[k][last]
			if left[k] = left[k][:last]; last == 0 {
				fine[s] = slices.Delete(fine[s], at, at+1)
				inside[s] = slices.Delete(inside[s], at, at+1)
				if len(fine[s]) == 0 {
					mass[s] = 0
				}
			}
		}
	}

	return job.newClients(out, "", 0), nil
}

// category draws an index with probability weight/sum. If no weight is left, it draws uniformly among the indices that
// may still be drawn; there must be at least one.
func category(weight []float64, may func(int) bool, rng *rand.Rand) int {
	sum := total(weight)
	u := rng.Float64() * sum
	var open []int
	last := -1
	for i, w := range weight {
		if may(i) {
			open = append(open, i)
		}
		if w > 0 {
			last = i
			if u -= w; u < 0 {
				break
			}
		}
	}

	if sum > 0 {
		return last
	}

	return open[rng.IntN(len(open))]
}

// pachinkoSeed seeds both generators of the Pachinko split, whatever the experiment's seed.
const pachinkoSeed = 12345

// codePachinko is "noniid-labeldir100" for any two levels of classes: train and test form one list, every client draws
// total/clients examples (the rest is unused), and at the end the clients are shuffled by the experiment's seed.
func codePachinko(job *job) ([]Client, error) {
	tree := &tree{job: job, examples: pyrand.NewPython(job.codeSeed), left: make([][]int, len(job.set.Classes)),
		fine: map[int][]int{}}
	all := job.join(job.codeLists())
	for _, i := range tree.examples.Sample(len(all), len(all)) {
		tree.left[all[i].label] = append(tree.left[all[i].label], i)
	}

	for k, s := range job.set.Coarse {
		tree.fine[s] = append(tree.fine[s], k)
	}

	for s := range job.set.Superclasses {
		if len(tree.fine[s]) > 0 { // a subset of the classes may leave superclasses without any
			tree.coarse = append(tree.coarse, s)
		}
	}

	drawnBy := make([][]int, job.Clients)
	for c := range drawnBy {
		var err error
		if drawnBy[c], err = tree.draw(len(all) / job.Clients); err != nil {
			return nil, err
		}
	}

	pyrand.Shuffle(pyrand.NewPython(job.seed), drawnBy)
	out := job.newShares()
	for c, own := range drawnBy {
		for _, i := range own {
			all[i].assign(out[c])
		}
	}

	if l := job.valList(); l >= 0 { // the public code has no val list: split as train, class by class
		job.likeTrain(out, l)
	}

	return job.newClients(out, "", 0), nil
}

// likeTrain splits the list of a split so that clients hold each class in proportion to their training examples of it.
func (j *job) likeTrain(out []shares, split int) {
	for k, index := range j.codeGroups()[split] {
		share := make([]float64, len(out))
		for c := range out {
			for _, i := range out[c][0] {
				if j.lists[0].label[i] == k {
					share[c]++
				}
			}
		}
		if sum := total(share); sum > 0 {
			divide(share, sum)
			assignParts(out, split, nil, index, partEnds(share, len(index), rounding))
		}
	}
}

// tree holds the superclasses with remaining examples, the remaining classes of each, and the remaining examples of
// each class.
type tree struct {
	*job
	examples *pyrand.Python
	coarse   []int
	fine     map[int][]int
	left     [][]int
}

// draw draws n examples of one client and removes them.
func (t *tree) draw(n int) ([]int, error) {
	mass := t.numpy.Dirichlet(t.Beta, len(t.coarse))
	inside := map[int][]float64{}
	for _, s := range t.coarse {
		inside[s] = t.numpy.Dirichlet(t.FineBeta, len(t.fine[s]))
	}

	category := func(p []float64, beta float64, key string) (int, error) {
		at := t.numpy.Category(p)
		if at < 0 {
			return at, fmt.Errorf("a Dirichlet(%g) draw underflowed, where the public code fails: raise "+
				"partition.%s or set partition.code to false", beta, key)
		}
		return at, nil
	}

	var out []int
	for range n {
		at, err := category(mass, t.Beta, "beta")
		if err != nil {
			return nil, err
		}

		superclass := t.coarse[at]
		fineAt, err := category(inside[superclass], t.FineBeta, "fine_beta")
		if err != nil {
			return nil, err
		}

		k := t.fine[superclass][fineAt]
		if len(t.left[k]) == 0 { // only if a class has no example from the start
			return nil, fmt.Errorf("class %d has no example, where the public code fails: set partition.code to false",
				k)
		}

		i := t.examples.RandBelow(len(t.left[k]))
		out = append(out, t.left[k][i])
		t.left[k] = slices.Delete(t.left[k], i, i+1)
		if len(t.left[k]) > 0 {
			continue
		}

		t.fine[superclass] = slices.Delete(t.fine[superclass], fineAt, fineAt+1)
		inside[superclass] = dropAndRenormalise(inside[superclass], fineAt)
		if len(t.fine[superclass]) == 0 {
			t.coarse = slices.Delete(t.coarse, at, at+1)
			mass = dropAndRenormalise(mass, at)
		}
	}

	return out, nil
}

// dropAndRenormalise removes an entry and makes the rest sum to 1.
func dropAndRenormalise(p []float64, at int) []float64 {
	p = slices.Delete(p, at, at+1)
	divide(p, pyrand.Sum(p))
	return p
}
