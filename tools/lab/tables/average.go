package tables

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/convert"
	"promptfed/tools/lab/results"
)

// prune drops rows and columns without planned runs, and rows and columns of metrics, domains and evaluation sets that
// no run has.
func (b *builder) prune() {
	table := b.table
	drop := make([]bool, len(table.Columns))
	for j := range table.Columns {
		planned, empty, pseudo := false, true, slices.ContainsFunc(b.Columns, b.pseudo)
		for _, c := range table.column(j) {
			planned, empty = planned || !c.Blank, empty && c.Stat.N() == 0 && !c.Absent
		}
		drop[j] = !planned || empty && pseudo
	}

	if slices.Contains(drop, false) { // otherwise every run failed, and the table must show this
		for j := len(drop) - 1; j >= 0; j-- {
			if !drop[j] {
				continue
			}
			table.Columns = slices.Delete(table.Columns, j, j+1)
			for i := range table.Rows {
				table.Rows[i].Cells = slices.Delete(table.Rows[i].Cells, j, j+1)
			}
		}
	}

	table.Rows = slices.DeleteFunc(table.Rows, func(r Row) bool {
		return !slices.ContainsFunc(r.Cells, func(c Cell) bool { return !c.Blank })
	})
}

// column returns the cells of a column.
func (t *Table) column(j int) []Cell {
	return convert.Slice(t.Rows, func(r Row) Cell { return r.Cells[j] })
}

// withAverages returns the combinations of the labels of some axes, and combinations with averages: over all axes of
// the grid if the layout asks for averages, and over some of them if the card has the paper's number for such an
// average.
func (b *builder) withAverages(axes, others []string, asked bool) []map[string]string {
	if !asked {
		return b.combinations(axes, nil)
	}

	over := map[string]bool{}
	plain := true // without a pseudo-axis there is a mean over everything
	for _, a := range axes {
		over[a] = !b.pseudo(a) && len(b.labels[a]) > 1
		plain = plain && (!b.pseudo(a) || a == EvaluationAxis)
	}

	beside := b.combinations(others, nil)
	return slices.DeleteFunc(b.combinations(axes, over), func(labels map[string]string) bool {
		some, every := false, true
		for _, a := range axes {
			if over[a] {
				some, every = some || labels[a] == AverageLabel, every && labels[a] == AverageLabel
			}
		}
		return some && !(every && plain) && !slices.ContainsFunc(beside, func(o map[string]string) bool {
			return b.at(merge(labels, o), b.metric) != nil
		})
	})
}

// averaged returns the axes of the grid whose labels are averages.
func (b *builder) averaged(labels map[string]string) []string {
	var out []string
	for _, a := range slices.Concat(b.Rows, b.Columns) {
		if labels[a] == AverageLabel && !b.pseudo(a) {
			out = append(out, a)
		}
	}
	return out
}

// average returns the mean of the cells along some axes, seed by seed, over the seeds common to all cells.
func (b *builder) average(labels map[string]string, axes []string) Cell {
	var cells []Cell
	for _, c := range b.combinations(axes, nil) {
		if cell := b.cell(merge(labels, c)); !cell.Blank {
			cells = append(cells, cell)
		}
	}

	if len(cells) == 0 {
		return Cell{Labels: labels, Metric: b.metric, Blank: true, Factor: 1}
	}

	out := Cell{Labels: labels, Metric: cells[0].Metric, Factor: cells[0].Factor, Unit: cells[0].Unit}
	var stats []results.Stat
	var views []string
	absent := true
	for _, c := range cells {
		stats = append(stats, c.Stat)
		out.Planned, out.data = max(out.Planned, c.Planned), out.data+c.data+"\n"
		out.groups = append(out.groups, c.groups...)
		absent = absent && c.Absent
		if c.View != "" {
			views = results.AppendMissing(views, c.View)
		}
	}

	out.Stat, out.Absent = results.Mean(stats), absent
	if len(views) > 1 {
		out.Stat, out.why = results.Stat{}, "there is no mean over global and personal evaluations; choose one with "+
			"--view"
		return out
	}

	out.View = strings.Join(views, "")
	out.Paper = b.paper(out)
	if n := out.Stat.N(); n < out.Planned && !absent {
		out.why = fmt.Sprintf("%d of %d seeds; the others lack cells that this averages over", n, out.Planned)
	}

	return out
}
