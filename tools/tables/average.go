package tables

import (
	"fmt"
	"maps"
	"slices"

	"promptfed/tools/results"
)

// prune drops rows and columns where nothing was planned, and those of metrics, domains and exams that no run has.
func (b *builder) prune() {
	t := b.t
	drop := make([]bool, len(t.Columns))
	for j := range t.Columns {
		planned, empty, pseudo := false, true, slices.ContainsFunc(b.Columns, b.pseudo)
		for _, c := range t.column(j) {
			planned, empty = planned || !c.Blank, empty && c.Stat.N() == 0
		}
		drop[j] = !planned || empty && pseudo
	}
	if slices.Contains(drop, false) { // else every run failed, which the table must say
		for j := len(drop) - 1; j >= 0; j-- {
			if !drop[j] {
				continue
			}
			t.Columns = slices.Delete(t.Columns, j, j+1)
			for i := range t.Rows {
				t.Rows[i].Cells = slices.Delete(t.Rows[i].Cells, j, j+1)
			}
		}
	}
	t.Rows = slices.DeleteFunc(t.Rows, func(r Row) bool {
		return !slices.ContainsFunc(r.Cells, func(c Cell) bool { return !c.Blank })
	})
}

// column gives the cells of a column.
func (t *Table) column(j int) []Cell {
	var out []Cell
	for _, r := range t.Rows {
		out = append(out, r.Cells[j])
	}
	return out
}

// averageRows adds the mean of every row at its end.
func (b *builder) averageRows() {
	if len(b.t.Columns) < 2 {
		return
	}
	b.t.Columns = append(b.t.Columns, Head{Labels: repeat(AverageLabel, len(b.Columns)), Average: true})
	for i, r := range b.t.Rows {
		b.t.Rows[i].Cells = append(r.Cells, b.average(r.Cells, b.Columns))
	}
}

// averageColumns adds the mean of every column below it.
func (b *builder) averageColumns() {
	if len(b.t.Rows) < 2 {
		return
	}
	row := Row{Labels: repeat(AverageLabel, len(b.Rows)), Average: true}
	for j := range b.t.Columns {
		row.Cells = append(row.Cells, b.average(b.t.column(j), b.Rows))
	}
	b.t.Rows = append(b.t.Rows, row)
}

// average is the mean of some cells, seed by seed, over the seeds that all of them have.
func (b *builder) average(cells []Cell, axes []string) Cell {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return c.Blank })
	if len(cells) == 0 {
		return Cell{Blank: true, Factor: 1}
	}
	out := Cell{Labels: maps.Clone(cells[0].Labels), Metric: cells[0].Metric, Factor: cells[0].Factor, Unit: cells[0].Unit}
	for _, a := range axes {
		out.Labels[a] = AverageLabel
	}
	var stats []results.Stat
	for _, c := range cells {
		stats = append(stats, c.Stat)
		out.Planned = max(out.Planned, c.Planned)
	}
	out.Stat = results.Mean(stats)
	out.Paper = b.number(out.Labels, out.Metric)
	if n := out.Stat.N(); n < out.Planned {
		out.Mark = b.note(fmt.Sprintf("%d of %d seeds; the others lack cells that this averages over", n, out.Planned))
	}
	return out
}
