package partition

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distmv"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/pyrand"
	"promptfed/runtime/convert"
	"promptfed/runtime/tensor"
)

// dirichlet cuts the examples of every class by proportions p ~ Dirichlet(beta) over the clients, the same for all
// lists: list entry n of a class goes to the first client whose cumulated proportion, times the length, truncated, is
// above n. Unless j.Uncap, a client that already has its 1/clients of the first list gets proportion 0 (as in the code
// of FedOTP and FedPHA). The draw is repeated with a new seed until every client has j.MinSize examples of the first
// and of the last list; with j.Fill, the last draw is filled up.
func dirichlet(j *job, seed uint64) ([]shares, error) {
	if err := j.checkFits(); err != nil {
		return nil, err
	}

	grouped, classes := j.byClass(), len(j.set.Classes)
	most := maxTries(j.Clients, classes)
	for try := range most {
		out := j.newShares()
		rng := data.NewRand(seed, "dirichlet", try)
		for k := range classes {
			share := proportions(out, len(j.lists[0].index), j.Config, rng)
			for l := range j.lists {
				index := slices.Clone(grouped[l][k])
				shuffle(index, rng)
				assignParts(out, l, nil, index, partEnds(share, len(index), rounding))
			}
		}

		full := allHave(out, j.MinSize)
		if !full && j.Fill && try == most-1 {
			j.fill(out)
			full = true
		}

		if full {
			return out, nil
		}
	}

	return nil, fmt.Errorf("none of %d draws with beta %g gave each of %d clients %d training and %d test examples: "+
		"raise partition.beta, lower partition.clients or partition.min_size, or set partition.fill",
		most, j.Beta, j.Clients, j.MinSize, j.MinSize)
}

// fill moves examples from the client with the most examples of a list to clients with fewer than MinSize. In the last
// list it prefers examples of a class that the receiving client trains on. It terminates, because there are at least
// MinSize examples for each client.
func (j *job) fill(out []shares) {
	for _, split := range j.codeLists() {
		for client := range out {
			for len(out[client][split]) < j.MinSize {
				from := 0
				for d := range out {
					if len(out[d][split]) > len(out[from][split]) {
						from = d
					}
				}

				trains := make([]bool, len(j.set.Classes))
				for _, i := range out[client][0] {
					trains[j.lists[0].label[i]] = true
				}

				have := out[from][split]
				at := len(have) - 1
				if split > 0 {
					at = max(slices.IndexFunc(have, func(i int) bool { return trains[j.lists[split].label[i]] }), 0)
				}

				out[client][split] = append(out[client][split], have[at])
				out[from][split] = slices.Delete(have, at, at+1)
			}
		}
	}
}

// proportions draws the share of every client in one class. size is the length of the first list.
func proportions(out []shares, size int, p Config, rng *rand.Rand) []float64 {
	n := len(out)
	share := symmetric(p.Beta, n, rng)
	room := func(c int) bool { return p.Uncap || float64(len(out[c][0])) < float64(size)/float64(n) }
	var free []int
	for c := range share {
		if room(c) {
			free = append(free, c)
		} else {
			share[c] = 0
		}
	}

	if sum := total(share); sum > 0 && !math.IsInf(sum, 0) {
		divide(share, sum)
		return share
	}

	// For tiny beta all draws underflow, or all mass lies on full clients. The limit of the distribution is one client
	// drawn uniformly; if there is a cap, among the clients with room.
	if len(free) == 0 {
		free = tensor.Indices(n)
	}

	clear(share)
	share[free[rng.IntN(len(free))]] = 1
	return share
}

// symmetric draws from Dirichlet(beta) over n; for tiny beta the numbers may be NaN or all 0.
func symmetric(beta float64, n int, rng *rand.Rand) []float64 {
	return distmv.NewDirichlet(slices.Repeat([]float64{beta}, n), rng).Rand(nil)
}

// dirichletOrOneHot is symmetric with the limit of the distribution for tiny beta: all mass on one of n, drawn
// uniformly.
func dirichletOrOneHot(beta float64, n int, rng *rand.Rand) []float64 {
	out := symmetric(beta, n, rng)
	if sum := total(out); sum > 0.5 && sum < 1.5 {
		return out
	}
	clear(out)
	out[rng.IntN(n)] = 1
	return out
}

// codeDirichlet is "noniid-labeldir" of the public code.
func codeDirichlet(job *job) ([]Client, error) {
	if err := job.checkFits(); err != nil {
		return nil, err
	}

	tries := maxTries(job.Clients, len(job.set.Classes))
	got, err := job.cutClasses(job.Beta, tries, func() *pyrand.NumPy { return job.numpy })
	if err != nil {
		return nil, fmt.Errorf("%w: raise partition.beta, lower partition.clients or partition.min_size, or set "+
			"partition.code to false and partition.fill", err)
	}

	return job.newClients(got, "", 0), nil
}

// codeDomainDirichlet is Dataset_partition_domain: one domain after the other, with the generator seeded with 0 before
// each class. One domain may get several of the remaining clients.
func codeDomainDirichlet(j *job) ([]Client, error) { return j.codeEachDomain(j.Beta) }

// codeDomain is codeDomainDirichlet with beta 0, which means even parts.
func codeDomain(j *job) ([]Client, error) { return j.codeEachDomain(0) }

func (j *job) codeEachDomain(beta float64) ([]Client, error) {
	count, err := j.clientsPerDomain(func() int { return j.numpy.IntN(len(j.domains)) })
	if err != nil {
		return nil, err
	}

	seed := j.Config.Seed
	var out []Client
	for i, domain := range j.domains {
		part := j.inDomain(domain, count[i])
		if err := part.checkFits(); err != nil {
			return nil, fmt.Errorf("domain %s: %w", j.set.Domains[domain], err)
		}

		got, err := part.cutClasses(beta, 1, func() *pyrand.NumPy {
			again, _ := pyrand.NewNumPy(seed) // seedCode has checked it
			return again
		})

		if err != nil {
			return nil, fmt.Errorf("domain %s: %w: the code seeds its generator with %d before every class, so each "+
				"further try draws the same and it would never end: set partition.seed to another number, raise "+
				"partition.beta, lower partition.clients or partition.min_size, or set partition.code to false",
				j.set.Domains[domain], err, seed)
		}

		out = append(out, j.newClients(got, j.set.Domains[domain], len(out))...)
	}

	return out, nil
}

// cutClasses cuts every class by Dirichlet(beta) proportions, in which full clients have 0, until all clients have
// j.MinSize examples of the first and of the last list; beta 0 cuts evenly. next returns the generator of a class, and
// most bounds the tries.
func (j *job) cutClasses(beta float64, most int, next func() *pyrand.NumPy) ([]shares, error) {
	grouped := j.codeGroups()
	room := float64(len(j.lists[0].index)) / float64(j.Clients)
	for range most {
		out := j.newShares()
		for k := range j.set.Classes {
			rng := next()
			index := convert.Slice(grouped, func(classes [][]int) []int { return slices.Clone(classes[k]) })
			for _, l := range j.codeLists() {
				rng.Shuffle(index[l])
			}

			ends := func(n int) []int { return evenEnds(n, j.Clients) }
			if beta != 0 {
				share := rng.Dirichlet(beta, j.Clients)
				for c := range share {
					if float64(len(out[c][0])) >= room {
						share[c] *= 0 // not = 0: NaN stays NaN
					}
				}
				divide(share, pyrand.Sum(share))
				ends = func(n int) []int { return partEnds(share, n, 0) }
			}

			for l := range index {
				assignParts(out, l, nil, index[l], ends(len(index[l])))
			}
		}

		if allHave(out, j.MinSize) {
			return out, nil
		}
	}

	return nil, fmt.Errorf("none of %d draws with beta %g gave each of %d clients %d training and %d test examples",
		most, beta, j.Clients, j.MinSize, j.MinSize)
}
