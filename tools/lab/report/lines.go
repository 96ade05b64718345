package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/runtime/tensor"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/stats"
	"promptfed/tools/lab/tables"
)

// scale returns the factor from values of a metric to values in figures, and the axis of the figure.
func scale(metric results.Metric) (float64, figures.Axis) {
	a := figures.Axis{Label: metric.Heading()}
	switch metric.Unit {
	case metrics.Percent:
		a.Label += " (%)"
		a.Bounds = [2]float64{0, 100}
	case metrics.Plain, metrics.Count:
	default:
		a.Label += " (" + string(metric.Unit) + ")"
	}

	return metric.Factor(), a
}

// linePanels returns a panel for each label of the panel's axis, with a line for each label of an axis. Each line is
// drawn from the groups of its labels.
func (v *view) linePanels(f configs.Figure, axis string, x, y figures.Axis, logarithmic bool,
	draw func(groups []*results.Group) figures.Line) (out []figures.LinePanel) {
	for _, p := range facets(v.groups, f.Panel) {
		panel := figures.LinePanel{Title: p.title, X: x, Y: y}
		for _, l := range facets(p.groups, axis) {
			if line := draw(l.groups); len(line.X) > 0 {
				line.Label = l.title
				panel.Lines = append(panel.Lines, line)
			}
		}
		if len(panel.Lines) > 0 {
			panel.X.Log = logarithmic && wide(panel.Lines)
			out = append(out, panel)
		}
	}

	return out
}

// curves draws a metric along rounds, bytes or time. The position of a round is the mean over seeds.
func (v *view) curves(figure configs.Figure, metric results.Metric) (figures.Drawer, error) {
	axis := cmp.Or(figure.Line, v.axis)
	factor, y := scale(metric)
	quantity, x := "", figures.Axis{Label: "round", Whole: true}
	switch alongOf(figure) {
	case configs.BytesAxis:
		quantity, x = metrics.TotalBytes, figures.Axis{Label: "bytes sent, up and down", Format: figures.Bytes}
	case configs.TimeAxis:
		quantity, x = metrics.Simulated, figures.Axis{Label: "simulated time", Format: figures.Seconds}
	}

	panels := v.linePanels(figure, axis, x, y, quantity == metrics.TotalBytes,
		func(groups []*results.Group) figures.Line {
			curve, along := results.Curves(groups, metric), results.Curve{}
			if quantity != "" {
				along = results.Curves(groups, metric.WithDefinition(quantity, ""))
			}

			line, most := figures.Line{}, 0
			for i, r := range curve.Rounds {
				x := float64(r)
				if quantity != "" {
					j, ok := slices.BinarySearch(along.Rounds, r)
					if !ok || along.Mean[j] <= 0 { // a method that sends nothing has no place on an axis of bytes
						continue
					}
					x = along.Mean[j]
				}
				line.X, line.Y = append(line.X, x), append(line.Y, factor*curve.Mean[i])
				line.Spread, most = append(line.Spread, factor*curve.Std[i]), max(most, curve.N[i])
			}

			if most < 2 {
				line.Spread = nil
			}

			return line
		})

	return figures.Curves{Title: figure.Title, Colours: v.colours(axis), Panels: panels}, nil
}

// colours returns the colours of an axis's labels, both raw and as displayed: the colours of the labels' methods if
// there are several methods, and none for a label with several methods.
func (v *view) colours(axis string) figures.Colours {
	methods := v.methods()
	if len(methods) < 2 {
		return nil
	}

	out, byMethod := figures.Colours{}, figures.MethodColours(methods)
	for _, l := range facets(v.groups, axis) {
		var places []int
		for _, g := range l.groups {
			if place, ok := byMethod[methodOf(g)]; ok {
				places = results.AppendMissing(places, place)
			}
		}
		if len(places) != 1 {
			continue
		}
		for _, label := range []string{l.label, titleOf(axis, l.label, true)} {
			out[label] = places[0]
		}
	}

	return out
}

// numbers parses the labels of an axis as numbers, or returns false if one is not a number.
func numbers(labels []string) ([]float64, bool) {
	var out []float64
	for _, l := range labels {
		x, err := strconv.ParseFloat(l, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, false
		}
		out = append(out, x)
	}

	return out, true
}

func (v *view) sensitivity(figure configs.Figure, metric results.Metric) (figures.Drawer, error) {
	along := facets(v.groups, figure.X)
	if figure.X == "" || len(along) == 0 {
		return nil, fmt.Errorf("it needs an axis x of the sweep")
	}

	labels := labelsOf(along)
	at, numeric := numbers(labels)
	x := figures.Axis{Label: figure.X}
	if !numeric {
		x.Names, at = labels, nil
		for i := range labels {
			at = append(at, float64(i))
		}
	}

	order := tensor.Order(len(at), func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	factor, y := scale(metric)
	panels := v.linePanels(figure, figure.Line, x, y, numeric, func(groups []*results.Group) (s figures.Line) {
		for _, i := range order {
			if c := stat(results.WithLabels(groups, map[string]string{figure.X: labels[i]}), metric); c.N() > 0 {
				s.X, s.Y = append(s.X, at[i]), append(s.Y, factor*c.Mean())
				s.Spread = append(s.Spread, factor*c.Std())
			}
		}
		return s
	})

	return figures.Sensitivity{Title: figure.Title, Colours: v.colours(figure.Line), Panels: panels}, nil
}

// wide reports whether lines span two decades or more of a positive axis.
func wide(lines []figures.Line) bool {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		low, high = min(low, slices.Min(l.X)), max(high, slices.Max(l.X))
	}
	return low > 0 && high/low >= 100
}

func (v *view) cost(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	out := figures.Cost{Title: f.Title, Colours: v.colours(v.axis), Bytes: "per round, all clients",
		Seconds: "per round"}
	for _, l := range facets(v.groups, v.axis) {
		row := figures.CostRow{Label: l.label, Bytes: stat(l.groups, m.WithDefinition(metrics.Bytes, "")).Mean(),
			Seconds: stat(l.groups, m.WithDefinition(metrics.Seconds, "")).Mean()}
		if row.Bytes > 0 || row.Seconds > 0 {
			out.Rows = append(out.Rows, row)
		}
	}

	return out, nil
}

func (v *view) significance(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	pairs := v.pairs[m.Name][results.OverRuns] // clients of a run are dependent
	compared := slices.DeleteFunc(slices.Clone(pairs), func(c results.Comparison) bool { return c.N == 0 })
	if v.control() != "" || len(compared) == 0 {
		return nil, figures.ErrEmpty // comparisons with a control form no matrix
	}

	factor, _ := scale(m)
	n := len(v.labels)
	out := figures.Significance{Title: f.Title, Value: "difference", Names: v.labels}
	for range n {
		out.Difference = append(out.Difference, make([]float64, n))
		out.P = append(out.P, slices.Repeat([]float64{math.NaN()}, n))
	}

	how := "No stars"
	if slices.ContainsFunc(compared, func(c results.Comparison) bool { return stats.EnoughPairs(c.Runs) }) {
		how = "Wilcoxon's signed-rank test, Holm's correction"
	}

	out.Test = strings.TrimSuffix(how+". "+strings.Join(results.Cautions(compared), " "), ".")
	for _, c := range pairs {
		i, j := slices.Index(v.labels, c.A), slices.Index(v.labels, c.B)
		out.Difference[i][j], out.Difference[j][i] = factor*c.Difference, -factor*c.Difference
		out.P[i][j], out.P[j][i] = c.HolmWilcoxon, c.HolmWilcoxon
	}

	return out, nil
}

func (v *view) ranks(figure configs.Figure, m results.Metric) (figures.Drawer, error) {
	r, ok := results.Rank(v.groups, v.axis, m)
	if !ok {
		return nil, figures.ErrEmpty
	}

	note := tables.Friedman(r)
	if stats.EnoughPairs(len(r.Blocks)) {
		note += " A bar joins those that lie less than it apart."
	}

	return figures.Ranks{Title: figure.Title, Names: r.Labels, Mean: r.Mean, Difference: r.CriticalDifference,
		Note: note}, nil
}
