package partition

import (
	"cmp"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
	"promptfed/federation/data/partition/pyrand"
)

// Functions whose names begin with code split examples as the public code of papers does: the same steps, in the same
// order, on the draws of Python's and NumPy's generators with the same seeds, so that every client holds exactly the
// same examples. The public code has no val list; val is split by the same rule after a shuffle from a separate
// generator, which changes no draw of the public code.

// seedCode sets the seed of a kind's public code, which is partition.seed, or what the code sets, or the job's seed, as
// from its command line. It makes NumPy's generator for kinds that draw from it.
func (j *job) seedCode(kind Kind) (err error) {
	j.codeSeed = cmp.Or(j.Config.Seed, kind.codeSeed, j.seed)
	if kind.drawsShots {
		return nil
	}

	if j.numpy, err = pyrand.NewNumPy(j.codeSeed); err != nil {
		return configtags.KeyErrorf("partition.code", "%w: set partition.seed", err)
	}

	return nil
}

// codeLists returns the numbers of the lists that the public code has: train and test, or the pool.
func (j *job) codeLists() []int { return slices.Compact([]int{0, len(j.lists) - 1}) }

// valList returns the number of the val list, or -1.
func (j *job) valList() int {
	if len(j.lists) == 3 {
		return 1
	}
	return -1
}

// codeGroups groups all lists by class, with the val list shuffled.
func (j *job) codeGroups() [][][]int {
	out := j.byClass()
	if l := j.valList(); l >= 0 {
		for k, index := range out[l] {
			shuffle(index, data.NewRand(j.seed, "partition/val", k))
		}
	}
	return out
}

// evenEnds returns the ends of the parts of numpy.array_split(n, parts): the first n mod parts have one more.
func evenEnds(n, parts int) []int {
	out := make([]int, parts)
	for i := range out {
		out[i] = (i+1)*(n/parts) + min(i+1, n%parts)
	}
	return out
}
