package published

import (
	"fmt"
	"slices"

	"promptfed/federation/data/partition/internal/allocation"
	"promptfed/federation/data/partition/pyrand"
)

// pachinkoSeed seeds both generators of the Pachinko split, whatever the experiment's seed.
const pachinkoSeed = 12345

// Pachinko is "noniid-labeldir100" for any two levels of classes: train and test form one list, every client draws
// total/clients examples (the rest is unused), and at the end the clients are shuffled by the experiment's seed.
func Pachinko(j *allocation.Job) ([]allocation.Client, error) {
	seed := seedOr(j, pachinkoSeed)
	weights, err := pyrand.NewNumPy(seed)
	if err != nil {
		return nil, fmt.Errorf("partition.code: %w", err)
	}
	examples := pyrand.NewPython(seed)
	lists := publicLists(j.Lists)
	start := []int{0}
	var label []int
	for _, l := range lists {
		for _, i := range j.Lists[l].Index {
			label = append(label, j.Lists[l].Label[i])
		}
		start = append(start, len(label))
	}
	all := make([]int, len(label))
	for i := range all {
		all[i] = i
	}
	left := make([][]int, len(j.Set.Classes))
	for _, i := range pyrand.Sample(examples, all, len(all)) {
		left[label[i]] = append(left[label[i]], i)
	}
	tree := newTree(j.Set.Coarse, len(j.Set.Superclasses))
	drawnBy := make([][]int, j.Clients)
	for c := range drawnBy {
		drawnBy[c], err = tree.draw(weights, examples, left, j.Beta, j.FineBeta, len(label)/j.Clients)
		if err != nil {
			return nil, err
		}
	}
	pyrand.Shuffle(pyrand.NewPython(j.Seed), drawnBy)
	out := allocation.NewShares(j.Clients, len(j.Lists))
	for c, own := range drawnBy {
		for _, i := range own {
			at := 0
			if i >= start[1] {
				at = 1
			}
			l := lists[at]
			out[c][l] = append(out[c][l], j.Lists[l].Index[i-start[at]])
		}
	}
	if l := valList(j.Lists); l >= 0 { // the public code has no val list: split as train, class by class
		likeTrain(j, out, l)
	}
	return j.NewClients(allocation.Sorted(out), "", 0), nil
}

// likeTrain splits list l so that clients hold each class in proportion to their training examples of it.
func likeTrain(j *allocation.Job, out []allocation.Shares, l int) {
	for k, index := range grouped(j, j.Lists)[l] {
		share := make([]float64, len(out))
		sum := 0.0
		for c := range out {
			for _, i := range out[c][0] {
				if j.Lists[0].Label[i] == k {
					share[c]++
					sum++
				}
			}
		}
		if sum == 0 {
			continue
		}
		for c := range share {
			share[c] /= sum
		}
		allocation.AssignParts(out, l, index, allocation.Boundaries(share, len(index)))
	}
}

// tree holds the superclasses with remaining examples, and the remaining classes of each.
type tree struct {
	coarse []int
	fine   map[int][]int
}

func newTree(coarse []int, superclasses int) *tree {
	t := &tree{fine: map[int][]int{}}
	for k, s := range coarse {
		t.fine[s] = append(t.fine[s], k)
	}
	for s := range superclasses {
		if len(t.fine[s]) > 0 { // a subset of the classes may leave superclasses without any
			t.coarse = append(t.coarse, s)
		}
	}
	return t
}

// draw draws n examples of one client and removes them from left.
func (t *tree) draw(weights *pyrand.NumPy, examples *pyrand.Python, left [][]int, beta, fineBeta float64, n int) ([]int,
	error) {
	mass := weights.Dirichlet(beta, len(t.coarse))
	inside := map[int][]float64{}
	for _, s := range t.coarse {
		inside[s] = weights.Dirichlet(fineBeta, len(t.fine[s]))
	}
	var out []int
	for range n {
		at := weights.Category(mass)
		if at < 0 {
			return nil, fmt.Errorf("a Dirichlet(%g) draw underflowed, where the public code fails: raise "+
				"partition.beta or set partition.code to false", beta)
		}
		s := t.coarse[at]
		fineAt := weights.Category(inside[s])
		if fineAt < 0 {
			return nil, fmt.Errorf("a Dirichlet(%g) draw underflowed, where the public code fails: raise "+
				"partition.fine_beta or set partition.code to false", fineBeta)
		}
		k := t.fine[s][fineAt]
		if len(left[k]) == 0 { // only if a class has no example from the start
			return nil, fmt.Errorf("class %d has no example, where the public code fails: set partition.code to false",
				k)
		}
		i := examples.RandBelow(len(left[k]))
		out = append(out, left[k][i])
		left[k] = slices.Delete(left[k], i, i+1)
		if len(left[k]) > 0 {
			continue
		}
		t.fine[s] = slices.Delete(t.fine[s], fineAt, fineAt+1)
		inside[s] = dropAndRenormalise(inside[s], fineAt)
		if len(t.fine[s]) == 0 {
			t.coarse = slices.Delete(t.coarse, at, at+1)
			mass = dropAndRenormalise(mass, at)
		}
	}
	return out, nil
}

// dropAndRenormalise removes an entry and makes the rest sum to 1.
func dropAndRenormalise(p []float64, at int) []float64 {
	p = slices.Delete(p, at, at+1)
	sum := pyrand.Sum(p)
	for i := range p {
		p[i] /= sum
	}
	return p
}
