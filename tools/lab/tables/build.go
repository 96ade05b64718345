package tables

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/metrics"
	"promptfed/tools/lab/results"
)

// Build returns the table of the groups. It returns an error if the groups lack an axis of the layout, or if a metric
// does not exist.
func Build(groups []*results.Group, l Layout) (*Table, error) {
	builder := builder{Layout: l, groups: groups, labels: map[string][]string{}}
	var err error
	if l.Metric == "" {
		builder.Metric = results.DefaultMetric(groups)
	}

	if builder.metric, err = results.ParseMetric(builder.Metric); err != nil {
		return nil, err
	}

	if err := builder.readAxes(); err != nil {
		return nil, err
	}

	return builder.build(), nil
}

type builder struct {
	Layout
	groups []*results.Group
	metric results.Metric
	grid   []results.Axis
	axes   []string            // of the grid
	labels map[string][]string // of every axis in rows or columns, pseudo-axes too
	table  *Table
}

// readAxes finds the labels of all axes of the layout.
func (b *builder) readAxes() error {
	b.grid = results.Axes(b.groups)
	for _, a := range b.grid {
		b.axes = append(b.axes, a.Name)
		b.labels[a.Name] = a.Labels
	}

	shown := slices.Concat(b.Rows, b.Columns)
	if err := configs.CheckPseudoAxes(slices.DeleteFunc(slices.Clone(shown), func(name string) bool {
		return !b.pseudo(name)
	})); err != nil {
		return err
	}

	seen := map[string]bool{}
	for _, name := range shown {
		if seen[name] {
			return fmt.Errorf("axis %q is listed twice in the rows and columns", name)
		}

		seen[name] = true
		if b.labels[name] != nil {
			continue
		}

		switch name {
		case DomainAxis:
			b.labels[name] = b.domainLabels()
		case SetAxis:
			b.labels[name] = results.Arguments(metrics.Set, b.groups)
			if b.asked(SetAxis, AverageLabel) || b.averagesOver(SetAxis) {
				b.labels[name] = append(b.labels[name], AverageLabel)
			}
		case MetricAxis:
			for _, m := range b.Metrics {
				if _, err := results.ParseMetric(m); err != nil {
					return err
				}
			}
			b.labels[name] = b.Metrics
		case EvaluationAxis:
			b.labels[name] = []string{results.GlobalView, results.PersonalView}
		default:
			return fmt.Errorf("unknown axis %q; known: %s", name, strings.Join(append(b.axes, DomainAxis,
				SetAxis, MetricAxis, EvaluationAxis), ", "))
		}
	}

	return nil
}

// domainLabels returns the domains, and the statistics over domains that the card contains or asks for.
func (b *builder) domainLabels() []string {
	out := results.Arguments(metrics.Domain, b.groups)
	average := b.asked(DomainAxis, AverageLabel) || b.averagesOver(DomainAxis)
	if average {
		out = append(out, AverageLabel)
	}

	if b.asked(DomainAxis, StdLabel) {
		out = append(out, StdLabel)
	}

	if b.asked(DomainAxis, OverallLabel) || !average {
		out = append(out, OverallLabel)
	}

	return out
}

// asked reports whether the card has a number of some group at a label of a pseudo-axis.
func (b *builder) asked(axis, label string) bool {
	return slices.ContainsFunc(b.groups, func(g *results.Group) bool {
		_, _, _, ok := b.Card.Number(merge(g.Labels, map[string]string{axis: label}))
		return ok
	})
}

// averagesOver reports whether the layout asks for means along the axis.
func (b *builder) averagesOver(axis string) bool {
	return b.averages("row") && slices.Contains(b.Columns, axis) || b.averages("column") && slices.Contains(b.Rows,
		axis)
}

func (b *builder) averages(what string) bool { return b.Average == what || b.Average == "both" }

func (b *builder) build() *Table {
	b.table = &Table{Title: b.Title, Metric: b.Metric, RowAxes: b.Rows, ColAxes: b.Columns, second: b.Second,
		axes: b.axes}
	rows, columns := b.withAverages(b.Rows, b.Columns, b.averages("column")), b.withAverages(b.Columns, b.Rows,
		b.averages("row"))
	for _, c := range columns {
		h := Head{Labels: values(b.Columns, c)}
		h.Average = isAverage(h.Labels)
		b.table.Columns = append(b.table.Columns, h)
	}

	for _, r := range rows {
		row := Row{Labels: values(b.Rows, r)}
		row.Average = isAverage(row.Labels)
		for _, c := range columns {
			row.Cells = append(row.Cells, b.cell(merge(r, c)))
		}
		b.table.Rows = append(b.table.Rows, row)
	}

	b.prune()
	b.place()
	b.fewer()
	b.best()
	b.number()
	b.finish()
	return b.table
}

// isAverage reports whether labels mean an average over everything.
func isAverage(labels []string) bool {
	return len(labels) > 0 && !slices.ContainsFunc(labels, func(l string) bool { return l != AverageLabel })
}

// combinations returns the products of the labels of some axes, with the first axis varying slowest. Axes in over get
// an additional label for their average.
func (b *builder) combinations(axes []string, over map[string]bool) []map[string]string {
	out := []map[string]string{{}}
	for _, a := range axes {
		labels := b.labels[a]
		if over[a] {
			labels = append(slices.Clone(labels), AverageLabel)
		}
		var next []map[string]string
		for _, have := range out {
			for _, l := range labels {
				next = append(next, merge(have, map[string]string{a: l}))
			}
		}
		out = next
	}

	return out
}

// shows reports whether an axis is in the rows or columns.
func (b *builder) shows(axis string) bool {
	return slices.Contains(b.Rows, axis) || slices.Contains(b.Columns, axis)
}

// pseudo reports whether an axis is a pseudo-axis here. An axis of the grid may have the same name.
func (b *builder) pseudo(axis string) bool {
	return !slices.Contains(b.axes, axis) && slices.Contains([]string{DomainAxis, SetAxis, MetricAxis, EvaluationAxis},
		axis)
}

// cell averages the groups with the given labels, seed by seed.
func (b *builder) cell(labels map[string]string) Cell {
	if over := b.averaged(labels); len(over) > 0 {
		return b.average(labels, over)
	}

	cell := Cell{Labels: labels, Metric: b.metric, Factor: 1}
	grid := maps.Clone(labels)
	narrowed := false // some groups may lack the narrowed metric
	for axis, label := range labels {
		if b.pseudo(axis) && axis != EvaluationAxis {
			cell.Metric, narrowed = b.within(axis, label), true
		}
		if b.pseudo(axis) {
			delete(grid, axis)
		}
	}

	if view, ok := labels[EvaluationAxis]; ok && b.pseudo(EvaluationAxis) {
		cell.Metric = cell.Metric.InEvaluation(view)
	}

	groups := results.WithLabels(b.groups, grid)
	if narrowed {
		groups = having(groups, cell.Metric)
	}

	cell.Blank, cell.groups = len(groups) == 0, groups
	cell.Factor, cell.Unit = b.shownIn(cell.Metric)
	var stats []results.Stat
	seeds := map[uint64]bool{}
	for _, g := range groups {
		stats = append(stats, g.Stat(cell.Metric))
		for _, r := range g.Runs {
			seeds[r.Seed] = true
		}
	}

	cell.Stat, cell.Planned = results.Mean(stats), len(seeds)
	if !cell.Blank && cell.Stat.N() < cell.Planned {
		cell.why = b.why(groups, cell)
	}

	cell.evaluate(groups)
	cell.Paper = b.paper(cell)
	return cell
}

// having drops the finished groups without the metric, such as groups of one data set without the domains of another.
// If no group has the metric it drops none.
func having(groups []*results.Group, m results.Metric) []*results.Group {
	var out []*results.Group
	some := false
	for _, g := range groups {
		n := g.Stat(m).N()
		some = some || n > 0
		if n > 0 || len(g.Done()) == 0 {
			out = append(out, g)
		}
	}

	if !some {
		return groups
	}

	return out
}

// within returns the metric of a label of a pseudo-axis.
func (b *builder) within(axis, label string) results.Metric {
	switch {
	case axis == MetricAxis:
		m, _ := results.ParseMetric(label) // readAxes has checked it
		return m
	case axis == SetAxis && label == AverageLabel:
		return b.metric.WithDefinition(metrics.SetMean, "")
	case axis == SetAxis:
		return b.metric.WithDefinition(metrics.Set, label)
	case label == AverageLabel:
		return b.metric.WithDefinition(metrics.DomainMean, "")
	case label == StdLabel:
		return b.metric.WithDefinition(metrics.DomainStd, "")
	case label == OverallLabel:
		return b.metric
	}

	return b.metric.WithDefinition(metrics.Domain, label)
}

// why describes the missing parts of a cell.
func (b *builder) why(groups []*results.Group, cell Cell) string {
	var reasons []string // different ones, in order
	runs := map[string][]string{}
	for _, g := range groups {
		for _, run := range g.Runs {
			if run.State == results.Done {
				continue
			}
			where := ""
			if len(groups) > 1 {
				where = g.Name + ", "
			}
			reason := fmt.Sprintf("%s: %s", run.State, run.Reason)
			reasons = results.AppendMissing(reasons, reason)
			runs[reason] = append(runs[reason], fmt.Sprintf("%sseed %d", where, run.Seed))
		}
	}

	var parts []string
	for i, reason := range reasons {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more reasons", len(reasons)-i))
			break
		}
		where := runs[reason]
		if more := len(where) - 4; more > 0 {
			where = append(where[:4], fmt.Sprintf("%d more", more))
		}
		parts = append(parts, strings.Join(where, " and ")+" "+reason)
	}

	if len(reasons) == 0 {
		return "the finished runs have no " + cell.Metric.Name
	}

	return fmt.Sprintf("%d of %d seeds; %s", cell.Stat.N(), cell.Planned, strings.Join(parts, "; "))
}

// fewer marks cells with fewer seeds than other cells, unless the caption states the seeds.
func (b *builder) fewer() {
	most := 0
	for c := range b.table.cells() {
		most = max(most, c.Stat.N())
	}

	for c := range b.table.cells() {
		if c.Stat.N() > 0 && c.Stat.N() < most && c.why == "" {
			c.why = fmt.Sprintf("over n = %d seeds, where other numbers of the table are over %d", c.Stat.N(), most)
		}
	}
}

// number assigns numbers to the notes of the cells; equal texts share one.
func (b *builder) number() {
	for c := range b.table.cells() {
		if c.why != "" {
			b.table.Notes = results.AppendMissing(b.table.Notes, c.why)
			c.Mark = slices.Index(b.table.Notes, c.why) + 1
		}
	}
}
