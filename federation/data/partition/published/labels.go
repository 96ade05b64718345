package published

import (
	"fmt"
	"slices"

	"promptfed/federation/data/partition/internal/allocation"
	"promptfed/federation/data/partition/pyrand"
)

// LabelUniform is "noniid-labeluni" of the public code. Parts are rounded down, so a few examples of a class stay
// unused, and a client may draw one class twice.
func LabelUniform(j *allocation.Job) ([]allocation.Client, error) {
	rng, err := numpy(j)
	if err != nil {
		return nil, err
	}
	classes := len(j.Set.Classes)
	if j.Classes*j.Clients%classes != 0 {
		return nil, fmt.Errorf("the public code needs clients*classes (%d*%d) to be a multiple of the set's %d "+
			"classes: change partition.clients or partition.classes", j.Clients, j.Classes, classes)
	}
	places := j.Classes * j.Clients / classes
	left := make([]int, classes)
	weights := make([][]float64, classes)
	for k := range left {
		left[k] = places
		weights[k] = make([]float64, places)
		for i := range weights[k] {
			weights[k][i] = rng.Uniform(0.4, 0.6)
		}
		sum := pyrand.Sum(weights[k])
		for i := range weights[k] {
			weights[k][i] /= sum
		}
	}
	own := make([][]int, j.Clients)
	share := make([][]float64, j.Clients)
	for c := range own {
		for range j.Classes {
			most := slices.Max(left)
			var may []int
			for k, n := range left {
				if n == most {
					may = append(may, k)
				}
			}
			k := may[rng.IntN(len(may))]
			left[k]--
			own[c] = append(own[c], k)
		}
		for _, k := range own[c] { // taken from the end of the class's weights
			last := len(weights[k]) - 1
			share[c] = append(share[c], weights[k][last])
			weights[k] = weights[k][:last]
		}
	}
	grouped := grouped(j, j.Lists)
	shuffler := pyrand.NewPython(j.Seed)
	for _, l := range publicLists(j.Lists) {
		for _, index := range grouped[l] {
			pyrand.Shuffle(shuffler, index)
		}
	}
	out := allocation.NewShares(j.Clients, len(j.Lists))
	counts := make([][]int, len(j.Lists))
	for l := range counts {
		counts[l] = make([]int, classes)
		for k := range counts[l] {
			counts[l][k] = len(grouped[l][k])
		}
	}
	for c := range out {
		for i, k := range own[c] {
			for l := range j.Lists {
				take := min(int(float64(counts[l][k])*share[c][i]), len(grouped[l][k]))
				out[c][l] = append(out[c][l], grouped[l][k][:take]...)
				grouped[l][k] = grouped[l][k][take:]
			}
		}
	}
	return j.NewClients(allocation.Sorted(out), "", 0), nil
}

// LabelClasses is "noniid-#labelK": client i holds class i mod C and further classes that it draws; a repeated class is
// drawn again.
func LabelClasses(j *allocation.Job) ([]allocation.Client, error) {
	rng, err := numpy(j)
	if err != nil {
		return nil, err
	}
	classes := len(j.Set.Classes)
	python := pyrand.NewPython(j.Seed)
	owners := make([][]int, classes)
	for c := range j.Clients {
		own := []int{c % classes}
		for len(own) < j.Classes {
			if k := python.RandBelow(classes); !slices.Contains(own, k) {
				own = append(own, k)
			}
		}
		for _, k := range own {
			owners[k] = append(owners[k], c)
		}
	}
	grouped := grouped(j, j.Lists)
	out := allocation.NewShares(j.Clients, len(j.Lists))
	for k, own := range owners {
		if len(own) == 0 {
			return nil, fmt.Errorf("no client holds class %s, which the public code cannot split: raise "+
				"partition.clients to %d or more", j.Set.Classes[k], classes)
		}
		for _, l := range publicLists(j.Lists) {
			rng.Shuffle(grouped[l][k])
		}
		for l := range j.Lists {
			start := 0
			for i, end := range evenEnds(len(grouped[l][k]), len(own)) {
				out[own[i]][l] = append(out[own[i]][l], grouped[l][k][start:end]...)
				start = end
			}
		}
	}
	return j.NewClients(allocation.Sorted(out), "", 0), nil
}
