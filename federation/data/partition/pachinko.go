package partition

import (
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
)

// pachinko lets one client after the other draw examples from all lists together. Each draw takes a superclass from the
// client's Dirichlet(beta) over the remaining superclasses, a class from its Dirichlet(fine_beta) over the superclass's
// remaining classes, and an example of the class uniformly. All clients draw the same number; if it does not divide,
// the first clients draw one more.
func pachinko(j *allocation.Job) ([]Client, error) {
	classes := len(j.Set.Classes)
	rng := data.NewRand(j.Seed, "pachinko")
	// all lists in sequence: example start[l]+i is entry i of list l
	start, label := []int{0}, []int{}
	for _, l := range j.Lists {
		for _, i := range l.Index {
			label = append(label, l.Label[i])
		}
		start = append(start, len(label))
	}
	left := make([][]int, classes)
	for i, k := range label {
		left[k] = append(left[k], i)
	}
	fine := make([][]int, len(j.Set.Superclasses))
	for k, c := range j.Set.Coarse {
		if len(left[k]) > 0 {
			fine[c] = append(fine[c], k)
		}
	}
	out := allocation.NewShares(j.Clients, len(j.Lists))
	for c := range out {
		mass := make([]float64, len(fine)) // 0 for superclasses without remaining examples
		inside := make([][]float64, len(fine))
		var open []int
		for s, f := range fine {
			if len(f) > 0 {
				open = append(open, s)
				inside[s] = dirichletOrOneHot(j.FineBeta, len(f), rng)
			}
		}
		if len(open) == 0 {
			break
		}
		for i, w := range dirichletOrOneHot(j.Beta, len(open), rng) {
			mass[open[i]] = w
		}
		size := len(label) / j.Clients
		if c < len(label)%j.Clients {
			size++
		}
		for range size {
			s := category(mass, func(s int) bool { return len(fine[s]) > 0 }, rng)
			at := category(inside[s], func(int) bool { return true }, rng)
			k := fine[s][at]
			n := rng.IntN(len(left[k]))
			example := left[k][n]
			left[k][n] = left[k][len(left[k])-1]
			left[k] = left[k][:len(left[k])-1]
			l, _ := slices.BinarySearch(start, example+1)
			out[c][l-1] = append(out[c][l-1], j.Lists[l-1].Index[example-start[l-1]])
			if len(left[k]) == 0 {
				fine[s] = slices.Delete(fine[s], at, at+1)
				inside[s] = slices.Delete(inside[s], at, at+1)
				if len(fine[s]) == 0 {
					mass[s] = 0
				}
			}
		}
	}
	return j.NewClients(allocation.Sorted(out), "", 0), nil
}

// category draws an index with probability weight/sum. If no weight is left, it draws uniformly among the indices that
// may still be drawn; there must be at least one.
func category(weight []float64, may func(int) bool, rng *rand.Rand) int {
	sum := 0.0
	for _, w := range weight {
		sum += w
	}
	last := -1
	if u := rng.Float64() * sum; sum > 0 {
		for i, w := range weight {
			if w > 0 {
				last = i
				if u -= w; u < 0 {
					break
				}
			}
		}
		return last
	}
	var open []int
	for i := range weight {
		if may(i) {
			open = append(open, i)
		}
	}
	return open[rng.IntN(len(open))]
}
