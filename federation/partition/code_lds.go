package partition

import (
	"fmt"

	"promptfed/federation/pyrand"
)

// codeLDS is the split of Office-Home-LDS: a matrix of shares, Dirichlet(beta) over the domains for each class; a
// client, the only one of its domain, gets the first int(share n) training examples of a class and is tested on all
// test examples of the domain. A pooled set is permuted and cut 70/30 first, domain by domain; the code, which seeds
// nothing, is given the experiment's seed.
func codeLDS(j *job) ([]Client, error) {
	if j.Clients != len(j.domains) {
		return nil, fmt.Errorf("the code has one client per domain: set partition.clients to %d", len(j.domains))
	}
	rng, err := j.numpy()
	if err != nil {
		return nil, err
	}
	classes := len(j.set.Classes)
	share := make([][]float64, classes)
	for k := range share {
		share[k] = rng.Dirichlet(j.Beta, j.Clients)
		if sum := pyrand.Sum(share[k]); sum != sum {
			return nil, fmt.Errorf("a Dirichlet(%g) draw underflowed, which ends the code: raise partition.beta or "+
				"set partition.code to false", j.Beta)
		}
	}
	var out []Client
	for n, d := range j.domains {
		lists := j.in(d)
		train := lists[0]
		c := Client{Domain: j.set.Domains[d]}
		if j.set.Pool != nil {
			order := pick(train.index, rng.Permutation(len(train.index)))
			cut := int(0.7 * float64(len(order)))
			train.index, c.Test = order[:cut], order[cut:]
		} else {
			c.Test = lists[len(lists)-1].index
		}
		for k, index := range train.byClass(classes) {
			c.Train = append(c.Train, index[:min(len(index), int(share[k][n]*float64(len(index))))]...)
		}
		if l := quiet(lists); l >= 0 {
			for k, index := range j.grouped(lists)[l] {
				c.Val = append(c.Val, index[:min(len(index), int(share[k][n]*float64(len(index))))]...)
			}
		}
		got := shares{c.Train, c.Val, c.Test}
		sorted([]shares{got})
		out = append(out, c)
	}
	return out, nil
}
