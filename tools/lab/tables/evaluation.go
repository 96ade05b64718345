package tables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/runtime/convert"
	"promptfed/tools/lab/results"
)

// meaning describes each evaluation.
var meaning = map[string]string{
	results.GlobalView:   "every client with the parameters that the server sends",
	results.PersonalView: "each client with the parameters that it last trained",
}

// evaluate finds the evaluation of a cell. It never averages over both evaluations.
func (c *Cell) evaluate(groups []*results.Group) {
	views := c.Metric.Views(groups)
	switch {
	case len(views) > 1:
		c.Stat, c.why = results.Stat{}, "there is no mean over global and personal evaluations; choose one with --view"
		return
	case len(views) == 1:
		c.View = views[0]
	}

	var data []string
	done, absent := 0, 0
	for r := range results.DoneRuns(groups) {
		done++
		if c.Metric.LacksEvaluation(r) {
			absent++
		}
		data = results.AppendMissing(data, r.TestData)
	}

	slices.Sort(data)
	c.data = strings.Join(data, "\n")
	if c.Absent = done > 0 && absent == done; c.Absent {
		c.why = ""
	}
}

// place names the evaluation of every row, or of every column, if the table has both evaluations.
func (b *builder) place() {
	table := b.table
	follows := func(c Cell) bool { return c.View != "" && c.Metric.UsesHeadline() }
	views := func(cells []Cell) (out []string) {
		for _, c := range cells {
			if follows(c) {
				out = results.AppendMissing(out, c.View)
			}
		}
		slices.Sort(out)
		return out
	}

	var all []Cell
	var rows, columns [][]string
	for _, r := range table.Rows {
		all, rows = append(all, r.Cells...), append(rows, views(r.Cells))
	}

	for j := range table.Columns {
		columns = append(columns, views(table.column(j)))
	}

	if table.views = views(all); b.both() {
		table.views = b.labels[EvaluationAxis]
		return
	}

	if len(table.views) < 2 {
		return
	}

	several := func(views []string) bool { return len(views) > 1 }
	switch {
	case !slices.ContainsFunc(rows, several):
		table.RowAxes = append(slices.Clone(table.RowAxes), EvaluationAxis)
		for i := range table.Rows {
			table.Rows[i].Labels = append(slices.Clone(table.Rows[i].Labels), strings.Join(rows[i], ""))
		}
	case !slices.ContainsFunc(columns, several):
		table.ColAxes = append(slices.Clone(table.ColAxes), EvaluationAxis)
		for j := range table.Columns {
			table.Columns[j].Labels = append(slices.Clone(table.Columns[j].Labels), strings.Join(columns[j], ""))
		}
	default:
		for c := range table.cells() {
			if follows(*c) && c.Stat.N() > 0 {
				c.why = strings.TrimSuffix(c.View+" evaluation; "+c.why, "; ")
			}
		}
	}
}

// both reports whether the table has a row or column for each of the two evaluations.
func (b *builder) both() bool { return b.labels[EvaluationAxis] != nil && b.pseudo(EvaluationAxis) }

// evaluations describes the evaluation of the numbers, and its inputs.
func (b *builder) evaluations() []string {
	var out []string
	say := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	switch t := b.table; {
	case len(t.views) == 1:
		say("Evaluation: %s, %s.", t.views[0], meaning[t.views[0]])
	case b.both():
		say("Evaluation: global is %s, personal %s. The two cannot be compared, so no best is marked across them.",
			meaning[results.GlobalView], meaning[results.PersonalView])
	case len(t.views) > 1:
		say("Evaluation: as named, by default the one of each method (eval.view); global is %s, personal %s. The two "+
			"cannot be compared, so no best is marked across them.", meaning[results.GlobalView],
			meaning[results.PersonalView])
	}

	absent, view := false, map[string]bool{}
	for c := range b.table.cells() {
		absent = absent || c.Absent
		view[c.View] = view[c.View] || c.Stat.N() > 0
	}

	if absent {
		say("%s: the method does not have this evaluation: its class scores use nothing that the server sends "+
			"(global) or nothing that a client trained (personal).", none)
	}

	out = append(out, b.unsaid()...)
	var both, untrained, missed []string
	tests := 0
	for _, g := range b.groups {
		name := b.called(g)
		for _, run := range g.Runs {
			s := run.Summary
			own := slices.Contains(s.Reads, record.ReadsPrivate) || slices.Contains(s.Reads, record.ReadsExamples)
			if own && slices.Contains(s.Reads, record.ReadsShared) {
				both = append(both, name)
			}
			if s.Untrained > 0 {
				untrained = append(untrained, fmt.Sprintf("%s %d", name, s.Untrained))
			}
			records := convert.Slice(run.Rounds, func(round results.Round) record.Record { return round.Record })
			for _, u := range record.MissingTests(records) {
				missed = append(missed, fmt.Sprintf("%s, seed %d: %s", name, run.Seed, u))
				tests++
			}
		}
	}

	if len(both) > 0 && view[results.GlobalView] {
		say("The global evaluation also uses private parameters or examples of each client: %s.", some(both))
	}

	if len(untrained) > 0 && view[results.PersonalView] {
		say("Clients that never trained have no parameters of their own; personal tests them with the server's, and "+
			"with initial values of private ones: %s.", some(untrained))
	}

	if tests > 0 {
		say("%d %s not answered by all clients: %s.", tests, map[bool]string{true: "test was",
			false: "tests were"}[tests == 1], some(missed))
	}

	return out
}

// stands returns the evaluation beside which the paper's number at the given labels stands: the number's own
// evaluation, or if unknown, the evaluation in the method's own paper. It is empty if both are unknown.
func (b *builder) stands(labels map[string]string) string {
	if v := b.Card.View(b.single(labels)); v == results.GlobalView || v == results.PersonalView {
		return v
	}

	grid := maps.Clone(labels)
	for axis, label := range labels {
		if b.pseudo(axis) || label == AverageLabel {
			delete(grid, axis)
		}
	}

	found := ""
	for r := range results.Runs(results.WithLabels(b.groups, grid)) {
		view := cmp.Or(r.Summary.MethodView, r.View)
		if view != "" && found != "" && view != found {
			return "" // runs of two evaluations
		}
		found = cmp.Or(found, view)
	}

	return found
}

// single returns the labels, plus the labels of the axes with a single label.
func (b *builder) single(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	for _, a := range b.grid {
		if _, shown := out[a.Name]; !shown && len(a.Labels) == 1 {
			out[a.Name] = a.Labels[0]
		}
	}
	return out
}

// unsaid describes paper numbers without a stated evaluation, and the evaluation of our numbers beside them.
func (b *builder) unsaid() []string {
	var open, other []string
	for c := range b.table.cells() {
		if c.Paper == nil {
			continue
		}
		label := cmp.Or(c.Labels[b.Card.Views.By], "all methods")
		switch stands := b.stands(c.Labels); {
		case stands != "" && c.View != "" && stands != c.View:
			other = append(other, label+" "+stands)
		case b.Card.View(b.single(c.Labels)) == configs.ViewNotStated:
			open = append(open, label)
		}
	}

	var out []string
	if len(open) > 0 {
		out = append(out, fmt.Sprintf("The paper does not say which evaluation its numbers are (%s); they are shown "+
			"with the one that the method's own paper reports.", some(open)))
	}

	if len(other) > 0 {
		out = append(out, fmt.Sprintf("The paper's numbers are of another evaluation and no difference is shown: "+
			"%s.", some(other)))
	}

	return out
}

// called returns the name of a group in sentences: its method's label, if it has one.
func (b *builder) called(g *results.Group) string {
	if l, ok := g.Labels[methodAxis]; ok {
		return l
	}
	return g.Name
}

// some joins the distinct entries of a list; of many only the first ones.
func some(list []string) string {
	const most = 4
	out := results.AppendMissing(nil, list...)
	if n := len(out) - most; n > 0 {
		out = append(out[:most], fmt.Sprintf("and %d more", n))
	}

	return strings.Join(out, "; ")
}
