package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"promptfed/configs"
	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
)

// namedFigure is a figure with the name of its files.
type namedFigure struct {
	file, title string
	name        string // the title without what the caption says
	caption     string // sentences: how to read it
	drawn       *figures.Figure
}

// view is one part of a report while its figures are made: a sweep, or the runs without a sweep.
type view struct {
	*Report
	plan   *results.Plan // nil for runs without a sweep
	groups []*results.Group
	metric results.Metric
	axis   string                                            // axis with the compared labels
	labels []string                                          // labels on this axis
	pairs  map[string]map[results.Level][]results.Comparison // by metric
}

// name returns the name of the sweep, or of the runs without one.
func (v *view) name() string { return cmp.Or(v.plan.Sweep(), "runs") }

func (v *view) note(format string, a ...any) {
	v.Notes = append(v.Notes, oneline.Text(fmt.Errorf(format, a...).Error()))
}

// draw makes the card's figures and, until the context ends, the standard figures. A figure that cannot be drawn
// becomes a note.
func (v *view) draw(ctx context.Context, card *configs.PaperTable) {
	drawn := map[string]bool{}
	if card != nil {
		for i, f := range card.Figures {
			drawn[f.Kind+alongOf(f)] = true
			v.add(fmt.Sprintf("%d-%s", i+1, f.Kind), f)
		}
	}

	for _, p := range panels {
		for _, file := range p.files {
			if f := (configs.Figure{Kind: p.kind, X: file[1]}); ctx.Err() == nil && !drawn[f.Kind+alongOf(f)] {
				v.add(file[0], f)
			}
		}
	}
}

// alongOf returns the horizontal axis of curves: bytes, time, or empty for rounds.
func alongOf(f configs.Figure) string {
	if f.Kind != configs.CurvesFigure || f.X == configs.ProgressAxes[0] {
		return ""
	}
	return f.X
}

// add draws a figure if its runs have the necessary data.
func (v *view) add(file string, figure configs.Figure) {
	metric := v.metric
	if figure.Metric != "" {
		var err error
		if metric, err = results.ParseMetric(figure.Metric); err != nil {
			v.note("figure %s: %w", file, err)
			return
		}
	}

	if figure.Title == "" {
		figure.Title = cmp.Or(map[string]string{configs.BytesAxis: "%s by bytes sent",
			configs.TimeAxis: "%s by simulated time"}[alongOf(figure)], kinds[figure.Kind].title)
		figure.Title = strings.Replace(figure.Title, "%s", tables.Capital(metric.Title), 1)
		if figure.Kind == "significance" {
			figure.Title += v.compared()
		}
	}

	if v.several() {
		figure.Title = v.name() + ": " + figure.Title
		file = v.name() + "-" + file
	}

	list := []results.Metric{metric}
	if kinds[figure.Kind].evaluated {
		list = v.each(metric)
	}

	for _, one := range list {
		name := file
		if len(list) > 1 {
			name += "-" + one.Views(v.groups)[0]
		}
		v.addOf(name, figure, one)
	}
}

// addOf draws a figure of one metric. Its title states the metric and the averaged axes.
func (v *view) addOf(file string, figure configs.Figure, metric results.Metric) {
	name, caption := figure.Title, v.caption(figure, metric)
	if len(caption.views) == 1 {
		name += ", " + caption.views[0] + " evaluation"
	}

	if text := caption.String(); text != "" {
		figure.Title += " (" + text + ")"
	}

	var drawn *figures.Figure
	err := fmt.Errorf("there is no figure of kind %q", figure.Kind)
	if k, ok := kinds[figure.Kind]; ok {
		var d figures.Drawer
		if d, err = k.draw(v, figure, metric); err == nil {
			drawn, err = figures.Draw(d)
		}
	}

	if errors.Is(err, figures.ErrEmpty) {
		return
	}

	if err != nil {
		v.note("figure %s is not drawn: %w", file, err)
		return
	}

	v.figures = append(v.figures, namedFigure{configs.Slug(file), figure.Title, name,
		caption.readAs(kinds[figure.Kind]), drawn})
}

// caption is what a figure's title does not say by itself.
type caption struct {
	views  []string // evaluations
	absent []string // labels without these evaluations
	seeds  string   // number of seeds of bands and error bars; empty for figures without them
	open   string   // labels with curves of runs that are not finished
	over   string   // averaged axes
}

// String returns what stands in brackets after a figure's title.
func (c caption) String() string {
	evaluation, seeds := "", ""
	if len(c.views) > 0 {
		evaluation = strings.Join(c.views, " and ") + " evaluation"
	}

	if len(c.absent) > 0 {
		evaluation += ", without " + strings.Join(c.absent, ", ")
	}

	if c.seeds != "" {
		seeds = "± sample deviation, " + c.seeds
	}

	return joined("; ", evaluation, seeds, c.open, c.over)
}

// joined joins the texts that are not empty.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), separator)
}

// readAs returns the caption on the page, in sentences. The title on the page states a single evaluation.
func (c caption) readAs(k panel) string {
	read, evaluation := "", ""
	if !k.deviates || c.seeds != "" {
		read = k.read
	}

	switch {
	case len(c.absent) > 0:
		evaluation = strings.Join(c.absent, ", ") + ": no such evaluation"
	case len(c.views) > 1:
		evaluation = strings.Join(c.views, " and ") + " evaluation"
	}

	for _, text := range []string{evaluation, c.seeds, c.open, c.over} {
		if text != "" {
			read = joined(" ", read, tables.Capital(text)+".")
		}
	}

	return read
}

// caption returns the caption of a figure.
func (v *view) caption(figure configs.Figure, m results.Metric) caption {
	caption := caption{seeds: v.seeds(figure)}
	if kinds[figure.Kind].evaluated {
		caption.views = m.Views(v.groups)
	}

	if len(caption.views) > 0 {
		for _, l := range facets(v.groups, v.axis) {
			if !slices.ContainsFunc(l.groups, func(g *results.Group) bool {
				return len(g.Done()) == 0 || slices.ContainsFunc(g.Done(),
					func(r *results.Run) bool { return !m.LacksEvaluation(r) })
			}) {
				caption.absent = append(caption.absent, l.label)
			}
		}
	}

	if figure.Kind == configs.CurvesFigure {
		open := slices.DeleteFunc(facets(v.groups, cmp.Or(figure.Line, v.axis)), func(l facet) bool {
			return !slices.ContainsFunc(l.groups, func(g *results.Group) bool {
				return slices.ContainsFunc(g.Drawn(), func(r *results.Run) bool {
					return r.State != results.Done && len(r.Rounds) > 0
				})
			})
		})
		if len(open) > 0 {
			caption.open = "not finished: " + strings.Join(labelsOf(open), ", ")
		}
	}

	if over := v.averagedOver(figure); len(over) > 0 {
		caption.over = "averaged over "
		if kinds[figure.Kind].every {
			caption.over = "over "
		}
		caption.over += strings.Join(over, " and ")
	}

	return caption
}

// seeds describes the number of seeds of bands and error bars; empty for figures without them.
func (v *view) seeds(f configs.Figure) string {
	if !kinds[f.Kind].deviates {
		return ""
	}

	least, most := math.MaxInt, 0
	for _, g := range v.groups {
		n := len(g.Done())
		if f.Kind == configs.CurvesFigure {
			n = len(g.Drawn())
		}
		least, most = min(least, n), max(most, n)
	}

	if most < 2 {
		return ""
	}
	return "n = " + results.Span(least, most) + " seeds"
}

// averagedOver lists the axes of the sweep, with their labels, that a figure averages over.
func (v *view) averagedOver(f configs.Figure) []string {
	if kinds[f.Kind].single {
		return nil
	}

	shown := []string{f.X, f.Y, f.Z, f.Line, f.Panel, f.Group}
	switch contested := f.Kind == "cost" || f.Kind == "significance"; {
	case contested, f.Kind == "curves" && f.Line == "", f.Kind == "strips" && f.Panel == "",
		f.Kind == "box" && results.Labels(v.groups, f.Group) == nil:
		shown = append(shown, v.axis)
	}

	var out []string
	for _, a := range results.Axes(v.groups) {
		if len(a.Labels) > 1 && !slices.Contains(shown, a.Name) {
			out = append(out, a.Name+": "+strings.Join(a.Labels, ", "))
		}
	}

	return out
}

// several reports whether the report has more than one part, so that figures need the part's name.
func (v *view) several() bool { return len(v.Plans) > 1 || len(v.Plans) == 1 && len(v.Of(nil)) > 0 }

// facet is the groups of one label of an axis, or without an axis, all groups under an empty label.
type facet struct {
	label  string
	title  string // the displayed label: a number follows the name of its axis
	groups []*results.Group
}

// facets splits groups by the labels of an axis.
func facets(groups []*results.Group, axis string) []facet {
	if axis == "" {
		return []facet{{"", "", groups}}
	}

	var out []facet
	labels := results.Labels(groups, axis)
	for _, l := range labels {
		out = append(out, facet{l, titleOf(axis, l, results.NeedAxisName(labels)), results.WithLabels(groups,
			map[string]string{axis: l})})
	}

	return out
}

// labelsOf returns the labels of facets.
func labelsOf(list []facet) []string {
	return convert.Slice(list, func(f facet) string { return f.label })
}

// titleOf returns the displayed label, with its axis if bare labels need it.
func titleOf(axis, label string, bare bool) string {
	if bare {
		return axis + " " + label
	}
	return label
}

// stat returns a metric over some groups, seed by seed.
func stat(groups []*results.Group, m results.Metric) results.Stat {
	list := convert.Slice(groups, func(g *results.Group) results.Stat { return g.Stat(m) })
	return results.Mean(list)
}
