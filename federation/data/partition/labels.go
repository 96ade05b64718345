package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/pyrand"
	"promptfed/runtime/tensor"
)

// Weights of the owners of a class.
func uniformWeight(rng *rand.Rand) float64 { return 0.4 + 0.2*rng.Float64() }
func evenWeight(*rand.Rand) float64        { return 1 }

// labelSkew assigns j.Classes classes to every client, so that the numbers of owners of classes differ by at most one,
// and cuts the shuffled examples of a class among its owners by weights, the same for all lists. A class without owner
// is an error.
func labelSkew(weight func(*rand.Rand) float64) allocator {
	return func(j *job, seed uint64) ([]shares, error) {
		classes := len(j.set.Classes)
		if j.Clients*j.Classes < classes {
			return nil, fmt.Errorf("%d clients with %d classes each leave some of the %d classes without a client: "+
				"raise partition.classes or partition.clients", j.Clients, j.Classes, classes)
		}

		rng := data.NewRand(seed, "owned")
		grouped, out := j.byClass(), j.newShares()
		for k, own := range owners(j.Clients, j.Classes, classes, rng) {
			share := make([]float64, len(own))
			for i := range share {
				share[i] = weight(rng)
			}
			divide(share, total(share))
			for l := range j.lists {
				index := grouped[l][k]
				shuffle(index, rng)
				assignParts(out, l, own, index, partEnds(share, len(index), rounding))
			}
		}

		return out, nil
	}
}

// owners returns the clients of every class. Each client in turn takes the classes with the most places left, with ties
// in random order, so no client takes a class twice.
func owners(clients, each, classes int, rng *rand.Rand) [][]int {
	left := make([]int, classes)
	for i, k := range rng.Perm(classes) {
		left[k] = clients * each / classes
		if i < clients*each%classes {
			left[k]++
		}
	}

	out := make([][]int, classes)
	for c := range clients {
		order := rng.Perm(classes)
		slices.SortStableFunc(order, func(a, b int) int { return left[b] - left[a] })
		for _, k := range order[:each] {
			left[k]--
			out[k] = append(out[k], c)
		}
	}

	return out
}

// codeLabelUniform is "noniid-labeluni" of the public code. Parts are rounded down, so a few examples of a class stay
// unused, and a client may draw one class twice.
func codeLabelUniform(job *job) ([]Client, error) {
	rng, classes := job.numpy, len(job.set.Classes)
	if job.Classes*job.Clients%classes != 0 {
		return nil, fmt.Errorf("the public code needs clients*classes (%d*%d) to be a multiple of the set's %d "+
			"classes: change partition.clients or partition.classes", job.Clients, job.Classes, classes)
	}

	places := job.Classes * job.Clients / classes
	left := slices.Repeat([]int{places}, classes)
	weights := make([][]float64, classes)
	for k := range weights {
		for range places {
			weights[k] = append(weights[k], rng.Uniform(0.4, 0.6))
		}
		divide(weights[k], pyrand.Sum(weights[k]))
	}

	own := make([][]int, job.Clients)
	share := make([][]float64, job.Clients)
	for client := range own {
		for range job.Classes {
			most := slices.Max(left)
			may := slices.DeleteFunc(tensor.Indices(classes), func(k int) bool { return left[k] < most })
			k := may[rng.IntN(len(may))]
			left[k]--
			own[client] = append(own[client], k)
		}

		for _, k := range own[client] { // taken from the end of the class's weights
			last := len(weights[k]) - 1
			share[client] = append(share[client], weights[k][last])
			weights[k] = weights[k][:last]
		}
	}

	rest := job.codeGroups()
	shuffler := pyrand.NewPython(job.seed)
	for _, l := range job.codeLists() {
		for _, index := range rest[l] {
			pyrand.Shuffle(shuffler, index)
		}
	}

	counts, out := job.byClass(), job.newShares()
	for c := range out {
		for i, k := range own[c] {
			for l := range job.lists {
				take := min(int(float64(len(counts[l][k]))*share[c][i]), len(rest[l][k]))
				out[c][l] = append(out[c][l], rest[l][k][:take]...)
				rest[l][k] = rest[l][k][take:]
			}
		}
	}

	return job.newClients(out, "", 0), nil
}

// codeLabelClasses is "noniid-#labelK": client i holds class i mod C and further classes that it draws; a repeated
// class is drawn again.
func codeLabelClasses(job *job) ([]Client, error) {
	classes := len(job.set.Classes)
	python := pyrand.NewPython(job.seed)
	owners := make([][]int, classes)
	for c := range job.Clients {
		own := []int{c % classes}
		for len(own) < job.Classes {
			if k := python.RandBelow(classes); !slices.Contains(own, k) {
				own = append(own, k)
			}
		}
		for _, k := range own {
			owners[k] = append(owners[k], c)
		}
	}

	grouped := job.codeGroups()
	out := job.newShares()
	for k, own := range owners {
		if len(own) == 0 {
			return nil, fmt.Errorf("no client holds class %s, which the public code cannot split: raise "+
				"partition.clients to %d or more", job.set.Classes[k], classes)
		}
		for _, l := range job.codeLists() {
			job.numpy.Shuffle(grouped[l][k])
		}
		for l := range job.lists {
			assignParts(out, l, own, grouped[l][k], evenEnds(len(grouped[l][k]), len(own)))
		}
	}

	return job.newClients(out, "", 0), nil
}
