package partition

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/pyrand"
)

// codeLabelDirichlet is "noniid-labeldir".
func codeLabelDirichlet(j *job) ([]Client, error) {
	rng, err := j.numpy()
	if err != nil {
		return nil, err
	}
	if err := j.fits(j.lists); err != nil {
		return nil, err
	}
	got, err := j.codeCut(j.lists, j.Clients, j.Beta, tries(j.Clients, len(j.set.Classes)),
		func() *pyrand.NumPy { return rng })
	if err != nil {
		return nil, fmt.Errorf("%w: raise partition.beta, lower partition.clients or partition.min_size, or set "+
			"partition.code to false and partition.fill", err)
	}
	return j.clients(got, "", 0), nil
}

// codeDomainDirichlet is Dataset_partition_domain: domain by domain, and before each class the generator is seeded with
// 0.
func codeDomainDirichlet(j *job) ([]Client, error) { return j.codeDomains(j.Beta) }

// codeDomain is the same with beta 0, which stands for even parts.
func codeDomain(j *job) ([]Client, error) { return j.codeDomains(0) }

func (j *job) codeDomains(beta float64) ([]Client, error) {
	if j.Clients < len(j.domains) {
		return nil, fmt.Errorf("%d clients for %d domains: raise partition.clients to at least %d", j.Clients,
			len(j.domains), len(j.domains))
	}
	rng, err := j.numpy()
	if err != nil {
		return nil, err
	}
	seed := j.fixed(0)
	count := make([]int, len(j.domains))
	for i := range count {
		count[i] = j.Clients / len(j.domains)
	}
	for range j.Clients % len(j.domains) { // one domain may be drawn twice
		count[rng.IntN(len(count))]++
	}
	var out []Client
	for i, d := range j.domains {
		q := j.Config
		q.Clients = count[i]
		lists := j.in(d)
		if err := q.fits(lists); err != nil {
			return nil, fmt.Errorf("domain %s: %w", j.set.Domains[d], err)
		}
		got, err := j.codeCut(lists, count[i], beta, 1, func() *pyrand.NumPy {
			again, _ := pyrand.NewNumPy(seed) // j.numpy has looked at the only seed that could be too large
			return again
		})
		if err != nil {
			return nil, fmt.Errorf("domain %s: %w: the code seeds its generator with %d before every class, so each "+
				"further try draws the same and it would never end: set partition.seed to another number, raise "+
				"partition.beta, lower partition.clients or partition.min_size, or set partition.code to false",
				j.set.Domains[d], err, seed)
		}
		out = append(out, j.clients(got, j.set.Domains[d], len(out))...)
	}
	return out, nil
}

// codeCut cuts every class by Dirichlet(beta) proportions of which those of full clients are set to 0, until all
// clients have j.MinSize of the first and of the last list; beta 0 cuts evenly. next gives the generator of a class,
// and most bounds the tries.
func (j *job) codeCut(lists []list, clients int, beta float64, most int, next func() *pyrand.NumPy) ([]shares, error) {
	grouped := j.grouped(lists)
	room := float64(len(lists[0].index)) / float64(clients)
	for range most {
		out := newShares(clients, len(lists))
		for k := range j.set.Classes {
			rng := next()
			index := make([][]int, len(lists))
			for l := range lists {
				index[l] = grouped[l][k]
			}
			for _, l := range drawn(lists) {
				index[l] = slices.Clone(index[l])
				rng.Shuffle(index[l])
			}
			if beta == 0 {
				for l := range lists {
					give(out, l, index[l], evenEnds(len(index[l]), clients))
				}
				continue
			}
			share := rng.Dirichlet(beta, clients)
			for c := range share {
				if float64(len(out[c][0])) >= room {
					share[c] *= 0 // not = 0: NaN stays NaN
				}
			}
			sum := pyrand.Sum(share)
			for c := range share {
				share[c] /= sum
			}
			for l := range lists {
				give(out, l, index[l], codeEnds(share, len(index[l])))
			}
		}
		if enough(out, j.MinSize) {
			return sorted(out), nil
		}
	}
	return nil, fmt.Errorf("none of %d draws with beta %g gave each of %d clients %d training and %d test examples",
		most, beta, clients, j.MinSize, j.MinSize)
}

// codeEnds are (cumsum(share) * n).astype(int) and n. When no share is a number, as after a draw that underflowed or
// when all shares were set to 0, the last client gets everything.
func codeEnds(share []float64, n int) []int {
	out := make([]int, len(share))
	sum := 0.0
	for i, x := range share {
		sum += x
		if !math.IsNaN(sum) {
			out[i] = min(n, int(sum*float64(n)))
		}
	}
	out[len(out)-1] = n
	return out
}
