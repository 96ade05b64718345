package published

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/data/partition/internal/allocation"
	"promptfed/federation/data/partition/pyrand"
)

// LabelDirichlet is "noniid-labeldir" of the public code.
func LabelDirichlet(j *allocation.Job) ([]allocation.Client, error) {
	rng, err := numpy(j)
	if err != nil {
		return nil, err
	}
	if err := j.CheckFits(j.Lists); err != nil {
		return nil, err
	}
	got, err := cutClasses(j, j.Lists, j.Clients, j.Beta, allocation.MaxTries(j.Clients, len(j.Set.Classes)),
		func() *pyrand.NumPy { return rng })
	if err != nil {
		return nil, fmt.Errorf("%w: raise partition.beta, lower partition.clients or partition.min_size, or set "+
			"partition.code to false and partition.fill", err)
	}
	return j.NewClients(got, "", 0), nil
}

// DomainDirichlet is Dataset_partition_domain: one domain after the other, with the generator seeded with 0 before each
// class.
func DomainDirichlet(j *allocation.Job) ([]allocation.Client, error) { return eachDomain(j, j.Beta) }

// Domain is DomainDirichlet with beta 0, which means even parts.
func Domain(j *allocation.Job) ([]allocation.Client, error) { return eachDomain(j, 0) }

func eachDomain(j *allocation.Job, beta float64) ([]allocation.Client, error) {
	if j.Clients < len(j.Domains) {
		return nil, fmt.Errorf("%d clients for %d domains: raise partition.clients to at least %d", j.Clients,
			len(j.Domains), len(j.Domains))
	}
	rng, err := numpy(j)
	if err != nil {
		return nil, err
	}
	seed := seedOr(j, 0)
	count := make([]int, len(j.Domains))
	for i := range count {
		count[i] = j.Clients / len(j.Domains)
	}
	for range j.Clients % len(j.Domains) { // one domain may be drawn twice
		count[rng.IntN(len(count))]++
	}
	var out []allocation.Client
	for i, d := range j.Domains {
		q := j.Config
		q.Clients = count[i]
		lists := j.InDomain(d)
		if err := q.CheckFits(lists); err != nil {
			return nil, fmt.Errorf("domain %s: %w", j.Set.Domains[d], err)
		}
		got, err := cutClasses(j, lists, count[i], beta, 1, func() *pyrand.NumPy {
			again, _ := pyrand.NewNumPy(seed) // numpy has checked the only seed that could be too large
			return again
		})
		if err != nil {
			return nil, fmt.Errorf("domain %s: %w: the code seeds its generator with %d before every class, so each "+
				"further try draws the same and it would never end: set partition.seed to another number, raise "+
				"partition.beta, lower partition.clients or partition.min_size, or set partition.code to false",
				j.Set.Domains[d], err, seed)
		}
		out = append(out, j.NewClients(got, j.Set.Domains[d], len(out))...)
	}
	return out, nil
}

// cutClasses cuts every class by Dirichlet(beta) proportions, in which full clients have 0, until all clients have
// j.MinSize examples of the first and of the last list; beta 0 cuts evenly. next returns the generator of a class, and
// most bounds the tries.
func cutClasses(j *allocation.Job, lists []allocation.List, clients int, beta float64, most int,
	next func() *pyrand.NumPy) ([]allocation.Shares, error) {
	grouped := grouped(j, lists)
	room := float64(len(lists[0].Index)) / float64(clients)
	for range most {
		out := allocation.NewShares(clients, len(lists))
		for k := range j.Set.Classes {
			rng := next()
			index := make([][]int, len(lists))
			for l := range lists {
				index[l] = grouped[l][k]
			}
			for _, l := range publicLists(lists) {
				index[l] = slices.Clone(index[l])
				rng.Shuffle(index[l])
			}
			if beta == 0 {
				for l := range lists {
					allocation.AssignParts(out, l, index[l], evenEnds(len(index[l]), clients))
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
				allocation.AssignParts(out, l, index[l], truncatedEnds(share, len(index[l])))
			}
		}
		if allocation.AllHave(out, j.MinSize) {
			return allocation.Sorted(out), nil
		}
	}
	return nil, fmt.Errorf("none of %d draws with beta %g gave each of %d clients %d training and %d test examples",
		most, beta, clients, j.MinSize, j.MinSize)
}

// truncatedEnds returns (cumsum(share) * n).astype(int), and n as the last end. If no share is a number, because the
// draw underflowed or all shares were set to 0, the last client gets everything.
func truncatedEnds(share []float64, n int) []int {
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
