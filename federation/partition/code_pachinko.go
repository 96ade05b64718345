package partition

import (
	"fmt"
	"slices"

	"promptfed/federation/pyrand"
)

// pachinkoSeed is what the Pachinko split seeds both generators with, whatever the experiment's seed.
const pachinkoSeed = 12345

// codePachinko is "noniid-labeldir100" for any two levels of classes: train and test are one list, every client draws
// total/clients examples (the rest is unused), and at the end the clients are shuffled by the experiment's seed.
func codePachinko(j *job) ([]Client, error) {
	seed := j.fixed(pachinkoSeed)
	weights, err := pyrand.NewNumPy(seed)
	if err != nil {
		return nil, fmt.Errorf("partition.code: %w", err)
	}
	examples := pyrand.NewPython(seed)
	lists := drawn(j.lists)
	start := []int{0}
	var label []int
	for _, l := range lists {
		for _, i := range j.lists[l].index {
			label = append(label, j.lists[l].label[i])
		}
		start = append(start, len(label))
	}
	all := make([]int, len(label))
	for i := range all {
		all[i] = i
	}
	left := make([][]int, len(j.set.Classes))
	for _, i := range pyrand.Sample(examples, all, len(all)) {
		left[label[i]] = append(left[label[i]], i)
	}
	tree := newTree(j.set.Coarse, len(j.set.Superclasses))
	drawnBy := make([][]int, j.Clients)
	for c := range drawnBy {
		drawnBy[c], err = tree.draw(weights, examples, left, j.Beta, j.FineBeta, len(label)/j.Clients)
		if err != nil {
			return nil, err
		}
	}
	pyrand.Shuffle(pyrand.NewPython(j.seed), drawnBy)
	out := newShares(j.Clients, len(j.lists))
	for c, own := range drawnBy {
		for _, i := range own {
			at := 0
			if i >= start[1] {
				at = 1
			}
			l := lists[at]
			out[c][l] = append(out[c][l], j.lists[l].index[i-start[at]])
		}
	}
	if l := quiet(j.lists); l >= 0 { // no public counterpart: as train, class by class
		j.likeTrain(out, l)
	}
	return j.clients(sorted(out), "", 0), nil
}

// likeTrain deals list l so that clients hold each class in proportion to their training examples of it.
func (j *job) likeTrain(out []shares, l int) {
	for k, index := range j.grouped(j.lists)[l] {
		share := make([]float64, len(out))
		sum := 0.0
		for c := range out {
			for _, i := range out[c][0] {
				if j.lists[0].label[i] == k {
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
		give(out, l, index, cuts(share, len(index)))
	}
}

// tree is the superclasses that have examples left, and the classes of each that have.
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
		if len(t.fine[s]) > 0 { // part of the classes may leave superclasses without any
			t.coarse = append(t.coarse, s)
		}
	}
	return t
}

// draw is one client's share of n examples, taken out of left.
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
			return nil, fmt.Errorf("a Dirichlet(%g) draw underflowed, which ends the code: raise partition.beta or "+
				"set partition.code to false", beta)
		}
		s := t.coarse[at]
		fineAt := weights.Category(inside[s])
		if fineAt < 0 {
			return nil, fmt.Errorf("a Dirichlet(%g) draw underflowed, which ends the code: raise partition.fine_beta "+
				"or set partition.code to false", fineBeta)
		}
		k := t.fine[s][fineAt]
		if len(left[k]) == 0 { // only where a class has no example from the start
			return nil, fmt.Errorf("class %d has no example, which ends the code: set partition.code to false", k)
		}
		i := examples.Below(len(left[k]))
		out = append(out, left[k][i])
		left[k] = slices.Delete(left[k], i, i+1)
		if len(left[k]) > 0 {
			continue
		}
		t.fine[s] = slices.Delete(t.fine[s], fineAt, fineAt+1)
		inside[s] = without(inside[s], fineAt)
		if len(t.fine[s]) == 0 {
			t.coarse = slices.Delete(t.coarse, at, at+1)
			mass = without(mass, at)
		}
	}
	return out, nil
}

// without removes an entry and makes the rest sum to 1.
func without(p []float64, at int) []float64 {
	p = slices.Delete(p, at, at+1)
	sum := pyrand.Sum(p)
	for i := range p {
		p[i] /= sum
	}
	return p
}
