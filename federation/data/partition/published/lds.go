package published

import (
	"fmt"

	"promptfed/federation/data/partition/internal/allocation"
	"promptfed/federation/data/partition/pyrand"
)

// LDS is the split of Office-Home-LDS: a matrix of shares, Dirichlet(beta) over the domains for each class. The only
// client of a domain gets the first int(share n) training examples of a class, and is tested on all test examples of
// the domain. A pooled set is first permuted and cut 70/30, domain by domain. The public code sets no seed; here the
// experiment's seed is used.
func LDS(j *allocation.Job) ([]allocation.Client, error) {
	if j.Clients != len(j.Domains) {
		return nil, fmt.Errorf("the public code has one client per domain: set partition.clients to %d", len(j.Domains))
	}
	rng, err := numpy(j)
	if err != nil {
		return nil, err
	}
	classes := len(j.Set.Classes)
	share := make([][]float64, classes)
	for k := range share {
		share[k] = rng.Dirichlet(j.Beta, j.Clients)
		if sum := pyrand.Sum(share[k]); sum != sum {
			return nil, fmt.Errorf("a Dirichlet(%g) draw underflowed, where the public code fails: raise "+
				"partition.beta or set partition.code to false", j.Beta)
		}
	}
	var out []allocation.Client
	for n, d := range j.Domains {
		lists := j.InDomain(d)
		train := lists[0]
		c := allocation.Client{Domain: j.Set.Domains[d]}
		if j.Set.Pool != nil {
			order := pick(train.Index, rng.Permutation(len(train.Index)))
			cut := int(0.7 * float64(len(order)))
			train.Index, c.Test = order[:cut], order[cut:]
		} else {
			c.Test = lists[len(lists)-1].Index
		}
		for k, index := range train.ByClass(classes) {
			c.Train = append(c.Train, index[:min(len(index), int(share[k][n]*float64(len(index))))]...)
		}
		if l := valList(lists); l >= 0 {
			for k, index := range grouped(j, lists)[l] {
				c.Val = append(c.Val, index[:min(len(index), int(share[k][n]*float64(len(index))))]...)
			}
		}
		got := allocation.Shares{c.Train, c.Val, c.Test}
		allocation.Sorted([]allocation.Shares{got})
		out = append(out, c)
	}
	return out, nil
}
