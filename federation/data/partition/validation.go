package partition

import (
	"cmp"
	"slices"

	"promptfed/federation/configtags"
	"promptfed/federation/data"
)

// MaxValidationShare is the largest share of its training examples that a client may use for validation.
const MaxValidationShare = 0.5

// CutValidation moves a share of every client's training examples to its validation data, as a function of the seed
// alone: floor(share·n + 1/2) of a client's n, at least one and not all, spread over its classes as evenly as whole
// examples allow, so that the class proportions stay. The examples become the list Val of set; the list Train stays,
// since indices point into it. It is an error if the set already has validation data. If clients overlap in training,
// one client may train on an example that another uses for validation.
func CutValidation(set *data.Set, clients []Client, share float64, seed uint64) error {
	if err := cmp.Or(
		configtags.Need(share > 0 && share <= MaxValidationShare, "data.val_share", "%v; it must be above 0 and at "+
			"most %v", share, MaxValidationShare),
		configtags.Need(set.Pool == nil, "data.val_share", "a pooled set is cut 60/20/20 and already has validation "+
			"data; remove it, or set data.split: given"),
		configtags.Need(len(set.Val) == 0, "data.val_share", "the set already has %d validation images; remove it to "+
			"use those", len(set.Val))); err != nil {
		return err
	}

	labels := data.Labels(set.Train)
	at := map[int]int{} // training index to its place in Val
	for i := range clients {
		client := &clients[i]
		var val []int
		client.Train, val = stratified(client.Train, labels, share, data.NewRand(seed, "validation", i).Uint64())
		client.Val = nil
		for _, k := range val {
			if _, ok := at[k]; !ok {
				at[k] = len(set.Val)
				set.Val = append(set.Val, set.Train[k])
			}
			client.Val = append(client.Val, at[k])
		}
		slices.Sort(client.Val)
	}

	return nil
}

// stratified draws a share of some examples. Example j (from 0) of the n of its class, in random order, has the place
// (j+1/2)/n. The examples with the lowest places are cut; classes with equal places are in random order.
func stratified(index, labels []int, share float64, seed uint64) (keep, cut []int) {
	type placed struct {
		index, tie int
		place      float64
	}
	gs := groups(list{index, labels})
	slices.SortFunc(gs, func(a, b group) int { return a.class - b.class })
	ties := data.NewRand(seed, "classes").Perm(len(gs))
	var all []placed
	for k, g := range gs {
		shuffle(g.index, data.NewRand(seed, "class", g.class))
		for j, i := range g.index {
			all = append(all, placed{i, ties[k], (float64(j) + 0.5) / float64(len(g.index))})
		}
	}

	slices.SortFunc(all, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.tie, b.tie))
	})
	n := min(max(1, int(share*float64(len(all))+0.5)), len(all)-1)
	for k, p := range all {
		if k < n {
			cut = append(cut, p.index)
		} else {
			keep = append(keep, p.index)
		}
	}

	slices.Sort(keep)
	slices.Sort(cut)
	return keep, cut
}
