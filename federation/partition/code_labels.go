package partition

import (
	"fmt"
	"slices"

	"promptfed/federation/pyrand"
)

// codeLabelUniform is "noniid-labeluni". Parts are rounded down, so that a few examples of a class stay unused, and a
// client may draw one class twice.
func codeLabelUniform(j *job) ([]Client, error) {
	rng, err := j.numpy()
	if err != nil {
		return nil, err
	}
	classes := len(j.set.Classes)
	if j.Classes*j.Clients%classes != 0 {
		return nil, fmt.Errorf("the code needs clients*classes (%d*%d) to be a multiple of the set's %d classes: "+
			"change partition.clients or partition.classes",
			j.Clients, j.Classes, classes)
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
		for _, k := range own[c] { // from the end of the class's weights
			last := len(weights[k]) - 1
			share[c] = append(share[c], weights[k][last])
			weights[k] = weights[k][:last]
		}
	}
	grouped := j.grouped(j.lists)
	shuffler := pyrand.NewPython(j.seed)
	for _, l := range drawn(j.lists) {
		for _, index := range grouped[l] {
			pyrand.Shuffle(shuffler, index)
		}
	}
	out := newShares(j.Clients, len(j.lists))
	counts := make([][]int, len(j.lists))
	for l := range counts {
		counts[l] = make([]int, classes)
		for k := range counts[l] {
			counts[l][k] = len(grouped[l][k])
		}
	}
	for c := range out {
		for i, k := range own[c] {
			for l := range j.lists {
				take := min(int(float64(counts[l][k])*share[c][i]), len(grouped[l][k]))
				out[c][l] = append(out[c][l], grouped[l][k][:take]...)
				grouped[l][k] = grouped[l][k][take:]
			}
		}
	}
	return j.clients(sorted(out), "", 0), nil
}

// codeLabelClasses is "noniid-#labelK": client i holds class i mod C and others that it draws, repeats drawn again.
func codeLabelClasses(j *job) ([]Client, error) {
	rng, err := j.numpy()
	if err != nil {
		return nil, err
	}
	classes := len(j.set.Classes)
	python := pyrand.NewPython(j.seed)
	owners := make([][]int, classes)
	for c := range j.Clients {
		own := []int{c % classes}
		for len(own) < j.Classes {
			if k := python.Below(classes); !slices.Contains(own, k) {
				own = append(own, k)
			}
		}
		for _, k := range own {
			owners[k] = append(owners[k], c)
		}
	}
	grouped := j.grouped(j.lists)
	out := newShares(j.Clients, len(j.lists))
	for k, own := range owners {
		if len(own) == 0 {
			return nil, fmt.Errorf("no client holds class %s, which the code cannot split: raise partition.clients "+
				"to %d or more", j.set.Classes[k], classes)
		}
		for _, l := range drawn(j.lists) {
			rng.Shuffle(grouped[l][k])
		}
		for l := range j.lists {
			start := 0
			for i, end := range evenEnds(len(grouped[l][k]), len(own)) {
				out[own[i]][l] = append(out[own[i]][l], grouped[l][k][start:end]...)
				start = end
			}
		}
	}
	return j.clients(sorted(out), "", 0), nil
}
