package partition

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"promptfed/federation/data"
)

// sample lets every client draw a share j.Share of every list, independently of the other clients. Client c's class
// proportions are q ~ Dirichlet(beta). Of class k it takes q[k] of its size, or all examples of the class if there are
// fewer; the rest comes from the classes with remaining examples, again in proportion to q. The proportions are the
// same for all lists.
func sample(j *job, seed uint64) ([]shares, error) {
	examples, classes := 0, len(j.set.Classes)
	for _, l := range j.lists {
		examples += len(l.index)
	}

	if j.Share*float64(examples)*float64(j.Clients) > maxOverlap {
		return nil, fmt.Errorf("%d clients with %g of %d examples each need too much memory: lower partition.clients "+
			"or partition.share", j.Clients, j.Share, examples)
	}

	grouped, out := j.byClass(), j.newShares()
	for c := range out {
		rng := data.NewRand(seed, "sample", c)
		q := dirichletOrOneHot(j.Beta, classes, rng)
		for l := range j.lists {
			have := make([]int, classes)
			for k := range have {
				have[k] = len(grouped[l][k])
			}
			size := int(math.Round(j.Share * float64(len(j.lists[l].index))))
			for k, n := range quotas(q, have, size) {
				out[c][l] = append(out[c][l], data.Pick(grouped[l][k], rng.Perm(have[k])[:n])...)
			}
		}
	}

	return out, nil
}

// quotas splits size among classes in proportion to q, at most have[k] each; the part of a full class goes to the
// others. Fractions are rounded by the largest remainder. The sum is size, or the sum of have if size is larger.
func quotas(q []float64, have []int, size int) []int {
	out := make([]int, len(q))
	left := min(total(have), size)
	for left > 0 {
		weight, sum := openWeights(q, out, have)
		given, full := 0, false
		remainder := make([]float64, len(q))
		var order []int // classes that may get one more
		for k, w := range weight {
			want := w / sum * float64(left)
			n := min(int(want), have[k]-out[k])
			out[k] += n
			given += n
			if w == 0 {
				continue
			}
			if out[k] == have[k] {
				full = true
				continue
			}
			remainder[k] = want - float64(n)
			order = append(order, k)
		}

		left -= given
		if full && given > 0 {
			continue
		}

		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainder[b], remainder[a]) })
		for _, k := range order[:min(left, len(order))] {
			out[k]++
			left--
		}
	}

	return out
}

// openWeights returns the weights of the classes with room, and their sum. If no mass is left, all classes with room
// have the same weight.
func openWeights(q []float64, out, have []int) ([]float64, float64) {
	weight, even := make([]float64, len(q)), make([]float64, len(q))
	for k := range q {
		if out[k] < have[k] {
			weight[k], even[k] = q[k], 1
		}
	}

	if total(weight) == 0 {
		weight = even
	}

	return weight, total(weight)
}
