package partition

import (
	"fmt"
	"math/rand/v2"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/pyrand"
)

// lds draws shares p[.][c] ~ Dirichlet(beta) over all clients for every class c. Client k takes int(p[k][c] n) of the n
// examples of class c in its own domain, of every list; clients of one domain take different examples. Since the shares
// of a class sum to 1 over all domains, most examples stay unused.
func lds(job *job) ([]Client, error) {
	count, err := job.clientsPerDomain(job.distinctDomains())
	if err != nil {
		return nil, err
	}

	classes := len(job.set.Classes)
	rng := data.NewRand(job.seed, "lds")
	share := make([][]float64, classes)
	for k := range share {
		share[k] = dirichletOrOneHot(job.Beta, job.Clients, rng)
	}

	var out []Client
	for i, d := range job.domains {
		part := job.inDomain(d, count[i])
		got := part.newShares()
		for l, groups := range part.byClass() {
			shuffler := data.NewRand(job.seed, "lds/shuffle", d, l)
			for k, index := range groups {
				takeShares(got, l, index, share[k][len(out):len(out)+count[i]], shuffler)
			}
		}
		out = append(out, job.newClients(got, job.set.Domains[d], len(out))...)
	}

	return out, nil
}

// takeShares assigns int(share n) of the n shuffled indices to each client, one after the other.
func takeShares(out []shares, l int, index []int, share []float64, rng *rand.Rand) {
	shuffle(index, rng)
	n := float64(len(index))
	for c, s := range share {
		take := min(len(index), int(s*n+1e-9))
		out[c][l] = append(out[c][l], index[:take]...)
		index = index[take:]
	}
}

// codeLDS is the split of Office-Home-LDS: a matrix of shares, Dirichlet(beta) over the domains for each class. The
// only client of a domain gets the first int(share n) training examples of a class, and is tested on all test examples
// of the domain. A pooled set is first permuted and cut 70/30, domain by domain. The public code sets no seed; here the
// experiment's seed is used.
func codeLDS(job *job) ([]Client, error) {
	if job.Clients != len(job.domains) {
		return nil, fmt.Errorf("the public code has one client per domain: set partition.clients to %d",
			len(job.domains))
	}

	rng, classes := job.numpy, len(job.set.Classes)
	share := make([][]float64, classes)
	for k := range share {
		share[k] = rng.Dirichlet(job.Beta, job.Clients)
		if sum := pyrand.Sum(share[k]); sum != sum {
			return nil, fmt.Errorf("a Dirichlet(%g) draw underflowed, where the public code fails: raise "+
				"partition.beta or set partition.code to false", job.Beta)
		}
	}

	var out []Client
	for n, d := range job.domains {
		first := func(groups [][]int) (kept []int) {
			for k, index := range groups {
				kept = append(kept, index[:min(len(index), int(share[k][n]*float64(len(index))))]...)
			}
			return kept
		}

		part := job.inDomain(d, 1)
		train := part.lists[0]
		client := Client{Domain: job.set.Domains[d], Test: part.lists[len(part.lists)-1].index}
		if job.set.Pool != nil {
			order := data.Pick(train.index, rng.Permutation(len(train.index)))
			cut := int(0.7 * float64(len(order)))
			train.index, client.Test = order[:cut], order[cut:]
		}

		client.Train = first(train.byClass(classes))
		if l := part.valList(); l >= 0 {
			client.Val = first(part.codeGroups()[l])
		}

		sorted([]shares{{client.Train, client.Val, client.Test}})
		out = append(out, client)
	}

	return out, nil
}
