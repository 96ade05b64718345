package partition

import (
	"slices"

	"promptfed/federation/data"
	"promptfed/federation/data/partition/internal/allocation"
)

// FewShot draws k examples of every class among the given indices, by the seed, and returns them in ascending order.
// Classes with fewer examples keep all, and k = 0 keeps all. labels belong to the whole list that index points into.
// Applied to the training part of each client, it is the k-shot selection of the few-shot split.
func FewShot(index, labels []int, k int, seed uint64) []int {
	if k <= 0 {
		return slices.Clone(index)
	}
	groups := map[int][]int{}
	for _, i := range index {
		groups[labels[i]] = append(groups[labels[i]], i)
	}
	var out []int
	for class, g := range groups {
		allocation.Shuffle(g, data.NewRand(seed, "shots", class))
		out = append(out, g[:min(k, len(g))]...)
	}
	slices.Sort(out)
	return out
}

// iidShots lets every client draw its few examples from all training examples, and splits the other lists.
func iidShots(j *allocation.Job) ([]Client, error) {
	if err := j.CheckShots(); err != nil {
		return nil, err
	}
	got, err := iid(j.Lists, len(j.Set.Classes), j.Config, data.NewRand(j.Seed, "partition/"+j.Kind, 0).Uint64())
	if err != nil {
		return nil, err
	}
	for i := range got {
		got[i][0] = slices.Clone(j.Lists[0].Index)
	}
	return j.NewClients(got, "", 0), nil
}
