package page

import (
	"slices"

	"gonum.org/v1/gonum/stat"
)

// group is the runs that differ in nothing but the seed.
type group struct {
	name string
	runs []int
}

// groupsOf sorts runs into groups, in the order in which they first appear; of is the group of each run.
func groupsOf(runs []Run) (groups []group, of []int) {
	at := map[string]int{}
	for i, r := range runs {
		name := or(r.Group, r.Name)
		g, seen := at[name]
		if !seen {
			g = len(groups)
			at[name] = g
			groups = append(groups, group{name: name})
		}
		groups[g].runs = append(groups[g].runs, i)
		of = append(of, g)
	}
	return groups, of
}

// average is the mean of some curves of one metric over the rounds in which every one of them has a value, and their
// standard deviation, the sample's (n-1) or the population's (n), which is nil for one curve.
func average(curves []Curve, sample bool) (rounds []int, mean, std []float64) {
	if len(curves) == 1 {
		for i, v := range curves[0].Values {
			if finite(v) {
				rounds, mean = append(rounds, curves[0].Rounds[i]), append(mean, v)
			}
		}
		return rounds, mean, nil
	}
	at := map[int][]float64{}
	for _, c := range curves {
		for i, round := range c.Rounds {
			if finite(c.Values[i]) {
				at[round] = append(at[round], c.Values[i])
			}
		}
	}
	for round, values := range at {
		if len(values) == len(curves) {
			rounds = append(rounds, round)
		}
	}
	slices.Sort(rounds)
	for _, round := range rounds {
		m, s := stat.PopMeanStdDev(at[round], nil)
		if sample {
			m, s = stat.MeanStdDev(at[round], nil)
		}
		mean, std = append(mean, m), append(std, s)
	}
	return rounds, mean, std
}
