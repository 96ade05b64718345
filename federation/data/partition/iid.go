package partition

import (
	"slices"

	"promptfed/federation/data"
)

// roundRobin assigns the indices to the clients in turn, beginning with client turn, and returns the next turn.
func roundRobin(out []shares, l int, index []int, turn int) int {
	for _, i := range index {
		out[turn][l] = append(out[turn][l], i)
		turn = (turn + 1) % len(out)
	}
	return turn
}

// iid assigns the shuffled examples of one class after the other to the clients in turn. Sizes of clients, and their
// counts of any class, therefore differ by at most one.
func iid(j *job, seed uint64) ([]shares, error) {
	out := j.newShares()
	for l, classes := range j.byClass() {
		rng := data.NewRand(seed, "iid", l)
		turn := 0
		for _, index := range classes {
			shuffle(index, rng)
			turn = roundRobin(out, l, index, turn)
		}
	}

	return out, nil
}

// iidShots lets every client draw its few examples from all training examples, and splits the other lists.
func iidShots(j *job) ([]Client, error) {
	if err := j.checkShots(); err != nil {
		return nil, err
	}

	out, err := overall(iid)(j)
	for i := range out {
		out[i].Train = slices.Clone(j.lists[0].index)
	}

	return out, err
}

// codeIID is the partition "homo" of the public code: a permutation of each list, split evenly.
func codeIID(job *job) ([]Client, error) {
	out := job.newShares()
	deal := func(l int, permutation func(int) []int) {
		n := len(job.lists[l].index)
		assignParts(out, l, nil, data.Pick(job.lists[l].index, permutation(n)), evenEnds(n, job.Clients))
	}

	for _, l := range job.codeLists() {
		deal(l, job.numpy.Permutation)
	}

	if l := job.valList(); l >= 0 {
		deal(l, data.NewRand(job.seed, "partition/val").Perm)
	}

	return job.newClients(out, "", 0), nil
}
