package results

import (
	"cmp"
	"math"
	"slices"

	"promptfed/runtime/convert"
	"promptfed/tools/lab/stats"
)

// Ranking ranks the labels of an axis over blocks, which are the points of the grid in the other axes, such as tasks.
// The ranked values are means over seeds. Tests and critical difference are NaN unless the blocks are
// stats.EnoughPairs.
type Ranking struct {
	Labels   []string // by mean rank, the best first
	Unranked []string // without a rank, because a run lacks the metric in some block
	Blocks   []string
	Stats    [][]Stat // [block][label]
	stats.Ranking
}

// Rank ranks the labels that have a metric in every run of every block; false with fewer than two blocks or two labels.
func Rank(groups []*Group, axis string, metric Metric) (Ranking, bool) {
	var out Ranking
	axes := slices.DeleteFunc(Axes(groups), func(a Axis) bool { return a.Name == axis })
	at := map[string]map[string]Stat{} // by label and block
	for _, g := range groups {
		block, label := titled(axes, g.Labels), g.Labels[axis]
		out.Blocks = AppendMissing(out.Blocks, block)
		if s := g.Stat(metric); s.N() > 0 && s.N() == len(g.Runs) {
			if at[label] == nil {
				at[label] = map[string]Stat{}
			}
			at[label][block] = s
		}
	}

	for _, label := range Labels(groups, axis) {
		if len(at[label]) == len(out.Blocks) {
			out.Labels = append(out.Labels, label)
		} else {
			out.Unranked = append(out.Unranked, label)
		}
	}

	if len(out.Blocks) < 2 || len(out.Labels) < 2 {
		return out, false
	}

	sign := 1.0
	if metric.Lower {
		sign = -1
	}

	values := func() [][]float64 {
		all := make([][]float64, len(out.Blocks))
		for i, block := range out.Blocks {
			for _, label := range out.Labels { // rounded so that means equal up to rounding are ties
				all[i] = append(all[i], math.Round(sign*at[label][block].Mean()*1e12)/1e12)
			}
		}
		return all
	}

	mean := map[string]float64{}
	for i, r := range stats.Friedman(values()).Mean {
		mean[out.Labels[i]] = r
	}

	slices.SortStableFunc(out.Labels, func(a, b string) int { return cmp.Compare(mean[a], mean[b]) })
	if out.Ranking = stats.Friedman(values()); !stats.EnoughPairs(len(out.Blocks)) {
		none := stats.Test{Statistic: math.NaN(), P: math.NaN()}
		out.ChiSquare, out.ImanDavenport, out.CriticalDifference = none, none, math.NaN()
	}

	for _, block := range out.Blocks {
		list := convert.Slice(out.Labels, func(label string) Stat { return at[label][block] })
		out.Stats = append(out.Stats, list)
	}

	return out, true
}
