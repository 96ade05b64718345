package partition

import (
	"fmt"
	"slices"

	"promptfed/federation/data"
)

// FewShot keeps k examples of every class that occurs among the given indices, drawn by the seed, in ascending order;
// classes with fewer keep what they have, and k = 0 keeps all. labels belong to the whole list that index points into.
// Called on the training part of each client, it is the k-shot selection of the few-shot split.
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
		shuffle(g, data.Stream(seed, "shots", class))
		out = append(out, g[:min(k, len(g))]...)
	}
	slices.Sort(out)
	return out
}

// mostOverlap bounds the indices of kinds whose clients overlap.
const mostOverlap = 100_000_000

// iidShots gives every client all training examples to draw its own few from, and deals out the other lists.
func iidShots(j *job) ([]Client, error) {
	if err := j.needsShots(); err != nil {
		return nil, err
	}
	got, err := iid(j.lists, len(j.set.Classes), j.Config, data.Stream(j.seed, "partition/"+j.Kind, 0).Uint64())
	if err != nil {
		return nil, err
	}
	for i := range got {
		got[i][0] = slices.Clone(j.lists[0].index)
	}
	return j.clients(got, "", 0), nil
}

func (j *job) needsShots() error {
	switch {
	case j.shots < 1:
		return fmt.Errorf("every client draws its own few examples: set data.shots, or take partition.kind: iid")
	case j.set.Pool != nil:
		return fmt.Errorf("a pooled set has no training list to draw from: set data.split to given")
	case len(j.lists[0].index) > mostOverlap/j.Clients:
		return fmt.Errorf("%d clients drawing from %d examples each take too much memory: lower partition.clients",
			j.Clients, len(j.lists[0].index))
	}
	return nil
}
