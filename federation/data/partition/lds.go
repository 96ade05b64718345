package partition

import (
	"math/rand/v2"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
)

// lds draws shares p[.][c] ~ Dirichlet(beta) over all clients for every class c. Client k takes int(p[k][c] n) of the n
// examples of class c in its own domain, of every list; clients of one domain take different examples. Since the shares
// of a class sum to 1 over all domains, most examples stay unused.
func lds(j *allocation.Job) ([]Client, error) {
	count, err := j.ClientsPerDomain()
	if err != nil {
		return nil, err
	}
	classes := len(j.Set.Classes)
	rng := data.NewRand(j.Seed, "lds")
	share := make([][]float64, classes)
	for k := range share {
		share[k] = dirichletOrOneHot(j.Beta, j.Clients, rng)
	}
	var out []Client
	for i, d := range j.Domains {
		got := allocation.NewShares(count[i], len(j.Lists))
		for l, list := range j.InDomain(d) {
			shuffler := data.NewRand(j.Seed, "lds/shuffle", d, l)
			for k, index := range list.ByClass(classes) {
				takeShares(got, l, index, share[k][len(out):len(out)+count[i]], shuffler)
			}
		}
		out = append(out, j.NewClients(allocation.Sorted(got), j.Set.Domains[d], len(out))...)
	}
	return out, nil
}

// takeShares assigns int(share n) of the n shuffled indices to each client, one after the other.
func takeShares(out []allocation.Shares, l int, index []int, share []float64, rng *rand.Rand) {
	allocation.Shuffle(index, rng)
	n := float64(len(index))
	for c, s := range share {
		take := min(len(index), int(s*n+1e-9))
		out[c][l] = append(out[c][l], index[:take]...)
		index = index[take:]
	}
}
