package main

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"promptfed/configs"
	"promptfed/tools/figures"
	"promptfed/tools/results"
)

// namedFigure is a figure with the name of its files.
type namedFigure struct {
	file, title string
	drawn       *figures.Figure
}

// view is a part of a report while its figures are made: a sweep, or runs that belong to none.
type view struct {
	*report
	plan   *results.Plan // nil for none
	groups []*results.Group
	name   string // of the sweep
	metric results.Metric
	spread results.Spread
	axis   string   // whose labels are compared
	labels []string // of that axis
	pairs  []results.Comparison
}

func (v *view) note(format string, a ...any) {
	v.Notes = append(v.Notes, oneLine(fmt.Errorf(format, a...)))
}

// Names of the figures that every report has, where its runs have what they show.
const (
	accuracyFigure     = "accuracy"
	clientsFigure      = "clients"
	costFigure         = "cost"
	partitionFigure    = "partition"
	significanceFigure = "significance"
)

// titles are those of figures whose card has none.
var titles = map[string]string{"curves": "By round", "shots": "By examples of a class", "sensitivity": "Sensitivity", "heatmap": "Combinations",
	"scatter3": "Combinations", "box": "Clients", "strips": "Clients by backbone", "tsne": "Prompts of clients (t-SNE)",
	"pca": "Features of images and texts (principal components)", "bubbles": "Training examples by client and class", "cost": "Cost",
	"significance": "Differences"}

// draw makes the figures that the card asks for and those that every report has. One that cannot be drawn is a note.
func (v *view) draw(card *configs.Card) {
	drawn := map[string]bool{}
	if card != nil {
		for i, f := range card.Figures {
			drawn[f.Kind] = true
			v.add(fmt.Sprintf("%d-%s", i+1, f.Kind), f)
		}
	}
	for _, d := range []struct{ file, kind string }{{accuracyFigure, "curves"}, {clientsFigure, "box"}, {costFigure, "cost"},
		{partitionFigure, "bubbles"}, {significanceFigure, "significance"}} {
		if !drawn[d.kind] {
			v.add(d.file, configs.Figure{Kind: d.kind})
		}
	}
}

// add draws a figure, unless its runs do not have what it shows.
func (v *view) add(file string, f configs.Figure) {
	m := v.metric
	if f.Metric != "" {
		var err error
		if m, err = results.ParseMetric(f.Metric); err != nil {
			v.note("figure %s: %w", file, err)
			return
		}
	}
	if f.Title == "" {
		f.Title = titles[f.Kind]
	}
	if v.several() {
		f.Title = cmp.Or(v.name, "runs") + ": " + f.Title
		file = cmp.Or(v.name, "runs") + "-" + file
	}
	d, err := v.drawer(f, m)
	if err == nil && d == nil {
		return
	}
	var drawn *figures.Figure
	if err == nil {
		drawn, err = d.Draw()
	}
	if err != nil {
		v.note("figure %s is not drawn: %w", file, err)
		return
	}
	v.figures = append(v.figures, namedFigure{slug(file), f.Title, drawn})
}

// several tells whether the report has more than one part, so that figures need the part's name.
func (v *view) several() bool {
	parts := len(v.Plans)
	if len(v.Of(nil)) > 0 {
		parts++
	}
	return parts > 1
}

var noSlug = regexp.MustCompile(`[^\pL\pN.]+`)

// slug makes a name that any file system takes.
func slug(s string) string {
	return strings.Trim(noSlug.ReplaceAllString(strings.ToLower(s), "-"), "-.")
}

// drawer makes the figure of a kind; nil without an error where the runs do not have what it shows.
func (v *view) drawer(f configs.Figure, m results.Metric) (figures.Drawer, error) {
	switch f.Kind {
	case "curves":
		return v.curves(f, m), nil
	case "shots", "sensitivity":
		return v.sensitivity(f, m)
	case "heatmap":
		return v.heatmap(f, m)
	case "scatter3":
		return v.scatter3(f, m)
	case "box":
		return v.box(f, m)
	case "strips":
		return v.strips(f, m)
	case "bubbles":
		return v.bubbles(f)
	case "cost":
		return v.cost(f, m), nil
	case "significance":
		return v.significance(f, m), nil
	case "tsne":
		return v.tsne(f)
	case "pca":
		return v.pca(f)
	}
	return nil, fmt.Errorf("there is no figure of kind %q", f.Kind)
}

// facet is the groups of one label of an axis; without an axis, all of them under an empty label.
type facet struct {
	label  string
	groups []*results.Group
}

// facets divides groups by the labels of an axis.
func facets(groups []*results.Group, axis string) []facet {
	if axis == "" {
		return []facet{{"", groups}}
	}
	var out []facet
	for _, a := range results.Axes(groups) {
		if a.Name == axis {
			for _, l := range a.Labels {
				out = append(out, facet{l, results.Where(groups, map[string]string{axis: l})})
			}
		}
	}
	return out
}

// stat is a metric over some groups, seed by seed.
func stat(groups []*results.Group, m results.Metric) results.Stat {
	var list []results.Stat
	for _, g := range groups {
		list = append(list, g.Stat(m))
	}
	return results.Mean(list)
}

// scale is what values of a metric are multiplied by in figures, and the axis that shows them.
func scale(m results.Metric) (float64, figures.Axis) {
	title, _, _ := strings.Cut(m.Title(), ",")
	if m.Unit() == results.Percent {
		return 100, figures.Axis{Label: title + " (%)", Within: [2]float64{0, 100}}
	}
	if m.Unit() != results.Plain {
		title += " (" + string(m.Unit()) + ")"
	}
	return 1, figures.Axis{Label: title}
}

func (v *view) curves(f configs.Figure, m results.Metric) figures.Drawer {
	line := f.Line
	if line == "" {
		line = v.axis
	}
	factor, y := scale(m)
	out := figures.Curves{Title: f.Title}
	for _, p := range facets(v.groups, f.Panel) {
		panel := figures.LinePanel{Title: p.label, X: figures.Axis{Label: "round"}, Y: y}
		for _, l := range facets(p.groups, line) {
			c := results.Curves(l.groups, m, v.spread)
			if len(c.Rounds) == 0 {
				continue
			}
			s := figures.Line{Label: l.label}
			for i, r := range c.Rounds {
				s.X, s.Y, s.Spread = append(s.X, float64(r)), append(s.Y, factor*c.Mean[i]), append(s.Spread, factor*c.Std[i])
			}
			if slices.Max(c.N) < 2 {
				s.Spread = nil
			}
			panel.Lines = append(panel.Lines, s)
		}
		if len(panel.Lines) > 0 {
			out.Panels = append(out.Panels, panel)
		}
	}
	if len(out.Panels) == 0 {
		return nil
	}
	return out
}

// numbers reads the labels of an axis as numbers, if all of them are.
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
	if numeric {
		low, high := slices.Min(at), slices.Max(at)
		x.Log = low > 0 && high/low >= 100
	} else {
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
	out := figures.Sensitivity{Title: f.Title}
	for _, p := range facets(v.groups, f.Panel) {
		panel := figures.LinePanel{Title: p.label, X: x, Y: y}
		for _, l := range facets(p.groups, f.Line) {
			s := figures.Line{Label: l.label}
			for _, i := range order {
				c := stat(results.Where(l.groups, map[string]string{f.X: labels[i]}), m)
				if c.N() > 0 {
					s.X, s.Y, s.Spread = append(s.X, at[i]), append(s.Y, factor*c.Mean()), append(s.Spread, factor*c.Std(v.spread))
				}
			}
			if len(s.X) > 0 {
				panel.Lines = append(panel.Lines, s)
			}
		}
		if len(panel.Lines) > 0 {
			out.Panels = append(out.Panels, panel)
		}
	}
	if len(out.Panels) == 0 {
		return nil, nil
	}
	return out, nil
}

func (v *view) cost(f configs.Figure, m results.Metric) figures.Drawer {
	out := figures.Cost{Title: f.Title, Bytes: "per round, all clients", Seconds: "per round"}
	factor, _ := scale(m)
	known := false
	for _, l := range facets(v.groups, v.axis) {
		row := figures.CostRow{Label: l.label, Bytes: stat(l.groups, m.In(results.Bytes, "")).Mean(), Seconds: stat(l.groups, m.In(results.Seconds, "")).Mean(),
			Accuracy: factor * stat(l.groups, m).Mean()}
		if row.Bytes > 0 || row.Seconds > 0 {
			known = true
			out.Rows = append(out.Rows, row)
		}
	}
	if !known {
		return nil
	}
	return out
}

func (v *view) significance(f configs.Figure, m results.Metric) figures.Drawer {
	if len(v.pairs) == 0 || !slices.ContainsFunc(v.pairs, func(c results.Comparison) bool { return c.N > 0 }) {
		return nil
	}
	factor, _ := scale(m)
	n := len(v.labels)
	out := figures.Significance{Title: f.Title, Value: "difference, paired over clients", Names: v.labels}
	for range n {
		out.Difference, out.P = append(out.Difference, make([]float64, n)), append(out.P, make([]float64, n))
	}
	for i := range n {
		out.P[i][i] = math.NaN()
	}
	for _, c := range v.pairs {
		i, j := slices.Index(v.labels, c.A), slices.Index(v.labels, c.B)
		out.Difference[i][j], out.Difference[j][i] = factor*c.Difference, -factor*c.Difference
		out.P[i][j], out.P[j][i] = c.HolmWilcoxon, c.HolmWilcoxon
	}
	return out
}
