package partition

import (
	"fmt"

	"promptfed/federation/data"
	"promptfed/federation/pyrand"
)

// The code* functions hand out as the public code does: its steps, in its order, on the draws of Python's and NumPy's
// generators from its seeds. Public code knows no val list; ours is dealt by the same rule after a shuffle of our own,
// which touches no draw of the code.

// fixed is a seed that the public code writes down, unless partition.seed is given.
func (j *job) fixed(seed uint64) uint64 {
	if j.Seed != 0 {
		return j.Seed
	}
	return seed
}

// numpy is NumPy's generator as the public code seeds it from its command line.
func (j *job) numpy() (*pyrand.NumPy, error) {
	n, err := pyrand.NewNumPy(j.seed)
	if err != nil {
		return nil, fmt.Errorf("partition.code: %w: set partition.seed", err)
	}
	return n, nil
}

// drawn are the numbers of the lists that the public code knows: train and test, or the pool.
func drawn(lists []list) []int {
	if len(lists) == 1 {
		return []int{0}
	}
	return []int{0, len(lists) - 1}
}

// quiet is the number of the val list, or -1.
func quiet(lists []list) int {
	if len(lists) == 3 {
		return 1
	}
	return -1
}

// grouped groups all lists by class, the val list shuffled.
func (j *job) grouped(lists []list) [][][]int {
	out := make([][][]int, len(lists))
	for l := range lists {
		out[l] = lists[l].byClass(len(j.set.Classes))
		if l == quiet(lists) {
			for k, index := range out[l] {
				shuffle(index, data.Stream(j.seed, "partition/val", k))
			}
		}
	}
	return out
}

// evenEnds are the ends of numpy.array_split(n, parts): the first n mod parts have one more.
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

// pick are the elements of index at the given places.
func pick(index, places []int) []int {
	out := make([]int, len(places))
	for i, p := range places {
		out[i] = index[p]
	}
	return out
}

// codeIID is the partition "homo": a permutation of each list, split evenly.
func codeIID(j *job) ([]Client, error) {
	rng, err := j.numpy()
	if err != nil {
		return nil, err
	}
	out := newShares(j.Clients, len(j.lists))
	for _, l := range drawn(j.lists) {
		index := j.lists[l].index
		give(out, l, pick(index, rng.Permutation(len(index))), evenEnds(len(index), j.Clients))
	}
	if l := quiet(j.lists); l >= 0 {
		index := pick(j.lists[l].index, data.Stream(j.seed, "partition/val").Perm(len(j.lists[l].index)))
		give(out, l, index, evenEnds(len(index), j.Clients))
	}
	return j.clients(sorted(out), "", 0), nil
}
