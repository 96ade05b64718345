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
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/stats"
	"promptfed/tools/lab/tables"
)

// scale returns the factor from values of a metric to values in figures, and the axis of the figure.
func scale(m results.Metric) (float64, figures.Axis) {
	a := figures.Axis{Label: m.Heading()}
	switch m.Unit {
	case metrics.Percent:
		a.Label += " (%)"
		a.Bounds = [2]float64{0, 100}
	case metrics.Plain, metrics.Count:
	default:
		a.Label += " (" + string(m.Unit) + ")"
	}
	return m.Factor(), a
}

func (v *view) curves(f configs.Figure, m results.Metric) figures.Drawer {
	line := cmp.Or(f.Line, v.axis)
	factor, y := scale(m)
	out := figures.Curves{Title: f.Title, Colours: v.colours(line)}
	of, x := alongAxis(f, m)
	for _, p := range facets(v.groups, f.Panel) {
		panel := figures.LinePanel{Title: p.title, X: x, Y: y}
		for _, l := range facets(p.groups, line) {
			c := results.Curves(l.groups, m)
			if len(c.Rounds) == 0 {
				continue
			}
			s, most := figures.Line{Label: l.title}, 0
			at := of(l.groups)
			for i, r := range c.Rounds {
				if x, ok := at(r); ok && x > 0 { // a method that sends nothing has no place on an axis of bytes
					s.X, s.Y, s.Spread = append(s.X, x), append(s.Y, factor*c.Mean[i]), append(s.Spread,
						factor*c.Std[i])
					most = max(most, c.N[i])
				}
			}
			if most < 2 {
				s.Spread = nil
			}
			if len(s.X) > 0 {
				panel.Lines = append(panel.Lines, s)
			}
		}
		if len(panel.Lines) > 0 {
			panel.X.Log = alongOf(f) == configs.BytesAxis && wide(panel.Lines)
			out.Panels = append(out.Panels, panel)
		}
	}
	return out
}

// alongAxis returns the horizontal axis of curves: a function from groups to the position of each round, the mean over
// seeds.
func alongAxis(f configs.Figure, m results.Metric) (func([]*results.Group) func(round int) (float64, bool),
	figures.Axis) {
	quantity, x := "", figures.Axis{Label: "round"}
	switch alongOf(f) {
	case configs.BytesAxis:
		quantity, x = metrics.TotalBytes, figures.Axis{Label: "bytes sent, up and down", Format: figures.Bytes}
	case configs.TimeAxis:
		quantity, x = metrics.Simulated, figures.Axis{Label: "simulated time", Format: figures.Seconds}
	}
	return func(groups []*results.Group) func(int) (float64, bool) {
		if quantity == "" {
			return func(round int) (float64, bool) { return float64(round), true }
		}
		c := results.Curves(groups, m.WithDefinition(quantity, ""))
		return func(round int) (float64, bool) {
			i, ok := slices.BinarySearch(c.Rounds, round)
			if !ok {
				return 0, false
			}
			return c.Mean[i], true
		}
	}, x
}

// colours returns the colours of an axis's labels, both raw and as displayed. They are the colours of the labels'
// methods if there are several methods. A label with several methods gets a colour after the methods' colours.
func (v *view) colours(axis string) figures.Colours {
	methods := v.methods()
	if len(methods) < 2 {
		return nil
	}
	out, of := figures.Colours{}, figures.MethodColours(methods)
	others := len(methods)
	for _, l := range facets(v.groups, axis) {
		var places []int
		for _, g := range l.groups {
			if place, ok := of[methodOf(g)]; ok && !slices.Contains(places, place) {
				places = append(places, place)
			}
		}
		if len(places) != 1 {
			places, others = []int{others}, others+1
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

func (v *view) sensitivity(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	along := facets(v.groups, f.X)
	if f.X == "" || len(along) == 0 {
		return nil, fmt.Errorf("it needs an axis x of the sweep")
	}
	labels := make([]string, len(along))
	for i, a := range along {
		labels[i] = a.label
	}
	at, numeric := numbers(labels)
	x := figures.Axis{Label: f.X}
	if !numeric {
		x.Names, at = labels, nil
		for i := range labels {
			at = append(at, float64(i))
		}
	}
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	factor, y := scale(m)
	out := figures.Sensitivity{Title: f.Title, Colours: v.colours(f.Line)}
	for _, p := range facets(v.groups, f.Panel) {
		panel := figures.LinePanel{Title: p.title, X: x, Y: y}
		for _, l := range facets(p.groups, f.Line) {
			s := figures.Line{Label: l.title}
			for _, i := range order {
				c := stat(results.WithLabels(l.groups, map[string]string{f.X: labels[i]}), m)
				if c.N() > 0 {
					s.X, s.Y, s.Spread = append(s.X, at[i]), append(s.Y, factor*c.Mean()), append(s.Spread,
						factor*c.Std())
				}
			}
			if len(s.X) > 0 {
				panel.Lines = append(panel.Lines, s)
			}
		}
		if len(panel.Lines) > 0 {
			panel.X.Log = numeric && wide(panel.Lines)
			out.Panels = append(out.Panels, panel)
		}
	}
	return out, nil
}

// wide reports whether lines span two decades or more of a positive axis.
func wide(lines []figures.Line) bool {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		low, high = min(low, slices.Min(l.X)), max(high, slices.Max(l.X))
	}
	return low > 0 && high/low >= 100
}

func (v *view) cost(f configs.Figure, m results.Metric) figures.Drawer {
	out := figures.Cost{Title: f.Title, Colours: v.colours(v.axis), Bytes: "per round, all clients",
		Seconds: "per round"}
	for _, l := range facets(v.groups, v.axis) {
		row := figures.CostRow{Label: l.label, Bytes: stat(l.groups, m.WithDefinition(metrics.Bytes, "")).Mean(),
			Seconds: stat(l.groups, m.WithDefinition(metrics.Seconds, "")).Mean()}
		if row.Bytes > 0 || row.Seconds > 0 {
			out.Rows = append(out.Rows, row)
		}
	}
	return out
}

func (v *view) significance(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	pairs := v.pairs[m.Name][results.OverRuns] // clients of a run are dependent
	if v.control() != "" || !slices.ContainsFunc(pairs, func(c results.Comparison) bool { return c.N > 0 }) {
		return nil, figures.ErrEmpty // comparisons with a control form no matrix
	}
	factor, _ := scale(m)
	n := len(v.labels)
	out := figures.Significance{Title: f.Title, Value: "difference, paired over runs", Names: v.labels}
	for range n {
		out.Difference, out.P = append(out.Difference, make([]float64, n)), append(out.P, make([]float64, n))
	}
	for i := range n {
		for j := range n {
			out.P[i][j] = math.NaN()
		}
	}
	compared := slices.DeleteFunc(slices.Clone(pairs), func(c results.Comparison) bool { return c.N == 0 })
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

func (v *view) ranks(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	r, ok := results.Rank(v.groups, v.axis, m)
	if !ok {
		return nil, figures.ErrEmpty
	}
	note := tables.Friedman(r)
	if stats.EnoughPairs(len(r.Blocks)) {
		note += " A bar joins those that lie less than it apart."
	}
	return figures.Ranks{Title: f.Title, Names: r.Labels, Mean: r.Mean, Difference: r.CriticalDifference,
		Note: note}, nil
}
