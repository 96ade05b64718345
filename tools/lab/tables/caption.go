package tables

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/tools/lab/results"
)

// finish writes the texts around the table.
func (b *builder) finish() {
	table := b.table
	say := func(format string, a ...any) { table.Caption = append(table.Caption, fmt.Sprintf(format, a...)) }
	fact := func(text string) {
		if text != "" {
			table.Caption, table.Facts = append(table.Caption, text), append(table.Facts, text)
		}
	}

	if b.shows(MetricAxis) {
		for _, name := range b.labels[MetricAxis] {
			if m, err := results.ParseMetric(name); err == nil && table.shows(name) {
				d := [2]string{m.ColumnHead(b.metric), m.TitleOf(b.groups)}
				table.Definitions = append(table.Definitions, d)
				say("%s: %s.", d[0], d[1])
			}
		}
	} else {
		_, unit := b.shownIn(b.metric)
		if unit != "" {
			unit = " (" + unit + ")"
		}
		fact(fmt.Sprintf("%s%s.", Capital(b.metric.TitleOf(b.groups)), unit))
	}

	fact(b.setWindow())
	table.Caption = append(table.Caption, b.evaluations()...)
	fact(b.seeds())
	fact(b.averagedOver())
	fact(results.ReproducedDefects(b.groups))
	fact(results.ExecutionDifferences(b.groups))
	if table.severalData {
		fact("The runs do not all have the same data, partition and tested rounds: no best is marked across these.")
	}

	bold, paper := false, false
	for c := range table.cells() {
		bold, paper = bold || c.Best, paper || c.Paper != nil
	}

	if bold {
		best := "the best of a column"
		if b.shows(methodAxis) {
			best = "the best method"
		}
		if len(table.views) > 1 {
			best += ", among those of one evaluation"
		}
		if table.severalData {
			best += ", among those on the same data"
		}
		if table.Legend.Best = best + "."; b.Second {
			table.Legend.Second = "the second best."
		}
	}

	switch {
	case paper && b.Smoke:
		table.Legend.Paper = "the paper's number; the runs are the small form of the experiment (--smoke) and cannot " +
			"be compared with it."
	case paper:
		table.Legend.Paper = "the paper's number, and ours minus the paper's."
	}

	if paperTable := b.Card; paperTable != nil {
		for _, s := range paperTable.Wrong {
			table.Remarks = append(table.Remarks, "Known errors of the paper: "+s)
		}

		for _, d := range paperTable.Differs {
			table.Remarks = append(table.Remarks, d.String())
		}

		for _, l := range paperTable.LeftOut {
			table.Remarks = append(table.Remarks, l.String())
		}

		if _, fits := units[b.metric.Unit][b.cardUnit()]; !fits && !paperTable.Numbers.Values.Empty() {
			table.Remarks = append(table.Remarks, fmt.Sprintf("The paper's numbers are not shown: %s is not measured "+
				"in %s.", b.metric.Name, b.cardUnit()))
		}

		if paperTable.NoNumbers != "" {
			table.Remarks = append(table.Remarks, "No numbers of the paper: "+paperTable.NoNumbers)
		}
	}
}

// shows reports whether a label of the axis of metrics remains in the table.
func (t *Table) shows(metric string) bool {
	for c := range t.cells() {
		if c.Labels[MetricAxis] == metric {
			return true
		}
	}
	return false
}

// setWindow describes the rounds of the numbers on evaluation sets if they differ from the table's rounds, because sets
// are tested less often than the clients' own data.
func (b *builder) setWindow() string {
	if !b.shows(SetAxis) || !b.pseudo(SetAxis) {
		return ""
	}

	var windows []string
	for _, set := range results.Arguments(metrics.Set, b.groups) {
		w := b.metric.WithDefinition(metrics.Set, set).WindowOf(b.groups)
		if w != "" {
			windows = results.AppendMissing(windows, w)
		}
	}

	if slices.Equal(windows, []string{b.metric.WindowOf(b.groups)}) {
		return ""
	}

	return "Evaluation sets: " + strings.Join(windows, "; ") + "."
}

// seeds describes the averaging behind the numbers.
func (b *builder) seeds() string {
	var seeds []string
	for r := range results.Runs(b.groups) {
		seeds = results.AppendMissing(seeds, fmt.Sprint(r.Seed))
	}

	if len(seeds) == 1 {
		return "One seed: " + seeds[0] + "."
	}

	var counts []int
	for c := range b.table.cells() {
		if c.Stat.N() > 0 {
			counts = append(counts, c.Stat.N())
		}
	}

	if len(counts) == 0 {
		return ""
	}

	return overSeeds(counts, seeds...)
}

// overSeeds describes the number behind ± in cells with the given numbers of seeds, and the seeds.
func overSeeds(n []int, seeds ...string) string {
	if slices.Max(n) < 2 {
		return "Each number is of one seed."
	}

	text := fmt.Sprintf("Mean ± sample standard deviation (n-1) over n = %s seeds",
		results.Span(slices.Min(n), slices.Max(n)))
	if len(seeds) > 0 {
		text += ": " + strings.Join(seeds, ", ")
	}

	return text + "."
}

// averagedOver names the axes outside rows and columns.
func (b *builder) averagedOver() string {
	var over []string
	for _, a := range b.grid {
		if !b.shows(a.Name) && len(a.Labels) > 1 {
			over = append(over, fmt.Sprintf("%s (%s)", a.Name, strings.Join(a.Labels, ", ")))
		}
	}

	if len(over) == 0 {
		return ""
	}

	return "Averaged over " + strings.Join(over, " and ") + "."
}
