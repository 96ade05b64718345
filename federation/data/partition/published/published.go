package published

import (
	"fmt"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
	"promptfed/federation/data/partition/pyrand"
)

// seedOr returns partition.seed, or the seed that the public code sets.
func seedOr(j *allocation.Job, seed uint64) uint64 {
	if j.Config.Seed != 0 {
		return j.Config.Seed
	}
	return seed
}

// numpy returns NumPy's generator, seeded as the public code seeds it from its command line.
func numpy(j *allocation.Job) (*pyrand.NumPy, error) {
	n, err := pyrand.NewNumPy(j.Seed)
	if err != nil {
		return nil, fmt.Errorf("partition.code: %w: set partition.seed", err)
	}
	return n, nil
}

// publicLists returns the numbers of the lists that the public code has: train and test, or the pool.
func publicLists(lists []allocation.List) []int {
	if len(lists) == 1 {
		return []int{0}
	}
	return []int{0, len(lists) - 1}
}

// valList returns the number of the val list, or -1.
func valList(lists []allocation.List) int {
	if len(lists) == 3 {
		return 1
	}
	return -1
}

// grouped groups all lists by class, with the val list shuffled.
func grouped(j *allocation.Job, lists []allocation.List) [][][]int {
	out := make([][][]int, len(lists))
	for l := range lists {
		out[l] = lists[l].ByClass(len(j.Set.Classes))
		if l == valList(lists) {
			for k, index := range out[l] {
				allocation.Shuffle(index, data.NewRand(j.Seed, "partition/val", k))
			}
		}
	}
	return out
}

// evenEnds returns the ends of the parts of numpy.array_split(n, parts): the first n mod parts have one more.
func evenEnds(n, parts int) []int {
	out := make([]int, parts)
	end := 0
	for i := range out {
		end += n / parts
		if i < n%parts {
			end++
		}
		out[i] = end
	}
	return out
}

// pick returns the elements of index at the given places.
func pick(index, places []int) []int {
	out := make([]int, len(places))
	for i, p := range places {
		out[i] = index[p]
	}
	return out
}

// IID is the partition "homo" of the public code: a permutation of each list, split evenly.
func IID(j *allocation.Job) ([]allocation.Client, error) {
	rng, err := numpy(j)
	if err != nil {
		return nil, err
	}
	out := allocation.NewShares(j.Clients, len(j.Lists))
	for _, l := range publicLists(j.Lists) {
		index := j.Lists[l].Index
		allocation.AssignParts(out, l, pick(index, rng.Permutation(len(index))), evenEnds(len(index), j.Clients))
	}
	if l := valList(j.Lists); l >= 0 {
		index := pick(j.Lists[l].Index, data.NewRand(j.Seed, "partition/val").Perm(len(j.Lists[l].Index)))
		allocation.AssignParts(out, l, index, evenEnds(len(index), j.Clients))
	}
	return j.NewClients(allocation.Sorted(out), "", 0), nil
}
