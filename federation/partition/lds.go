package partition

import (
	"math/rand/v2"

	"promptfed/federation/data"
)

// lds draws, for every class c, shares p[.][c] ~ Dirichlet(beta) over all clients. Client k takes int(p[k][c] n) of the
// n examples of class c in its own domain, of every list; clients of one domain take different ones. As the shares of a
// class sum to 1 over all domains, most examples stay unused.
func lds(j *job) ([]Client, error) {
	count, err := j.perDomain()
	if err != nil {
		return nil, err
	}
	classes := len(j.set.Classes)
	rng := data.Stream(j.seed, "lds")
	share := make([][]float64, classes)
	for k := range share {
		share[k] = mix(j.Beta, j.Clients, rng)
	}
	var out []Client
	for i, d := range j.domains {
		got := newShares(count[i], len(j.lists))
		for l, list := range j.in(d) {
			shuffler := data.Stream(j.seed, "lds/shuffle", d, l)
			for k, index := range list.byClass(classes) {
				takeShares(got, l, index, share[k][len(out):len(out)+count[i]], shuffler)
			}
		}
		out = append(out, j.clients(sorted(got), j.set.Domains[d], len(out))...)
	}
	return out, nil
}

// takeShares gives each client int(share n) of the n shuffled indices, one after the other.
func takeShares(out []shares, l int, index []int, share []float64, rng *rand.Rand) {
	shuffle(index, rng)
	n := float64(len(index))
	for c, s := range share {
		take := min(len(index), int(s*n+1e-9))
		out[c][l] = append(out[c][l], index[:take]...)
		index = index[take:]
	}
}
