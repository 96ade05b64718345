package tables

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"promptfed/federation/engine/metrics"
	"promptfed/tools/lab/results"
)

// View is how a table is shown on a terminal.
type View struct {
	Width       int  // columns of the terminal; 0 for any
	All         bool // every metric, not only mostMetrics
	Definitions bool // what the numbers are, in sentences
}

// mostMetrics is how many metrics stand side by side unless all are wanted.
const mostMetrics = 5

// Terminal is the table as text. Where it is wider than the terminal it comes in blocks of columns, each with the rows'
// labels.
func (t *Table) Terminal(v View) string {
	columns := t.metrics(v.All)
	var b strings.Builder
	b.WriteString(t.Title + "\n")
	rows := t.cells(columns)
	if v.Width > 0 {
		shorten(rows, len(t.RowAxes), max(16, v.Width/2))
	}
	for i, block := range blocks(rows, len(t.RowAxes), v.Width) {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(Plain(block, len(t.RowAxes)))
	}
	sentences := slices.Clone(t.Facts)
	if v.Definitions {
		sentences = t.Sentences("", "", "")
	}
	legend := *t
	legend.Caption = nil
	for _, s := range append(sentences, legend.Sentences("*", "", "In brackets")...) {
		b.WriteString(s + "\n")
	}
	for i, n := range t.Notes {
		if slices.ContainsFunc(columns, func(j int) bool { return t.marks(j, i+1) }) {
			fmt.Fprintf(&b, "[%d] %s\n", i+1, n)
		}
	}
	return b.String()
}

// marks reports whether a cell of a column has the mark of a note.
func (t *Table) marks(column, note int) bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Cells[column].Mark == note })
}

// Hidden is how many columns a view without All leaves out.
func (t *Table) Hidden() int { return len(t.Columns) - len(t.metrics(false)) }

// metrics are the columns to show, in their order. Unless all are wanted these are at most mostMetrics: the table's own
// metric, both evaluations, those that a terminal shows first (metrics.Definition.Terminal), then others. A column with
// the same texts as one before is left out.
func (t *Table) metrics(all bool) []int {
	var order []int
	for j := range t.Columns {
		order = append(order, j)
	}
	axis := slices.Index(t.ColAxes, MetricAxis)
	if all || axis < 0 || len(t.ColAxes) > 1 || len(order) <= mostMetrics {
		return order
	}
	rank := func(j int) int {
		name := t.Columns[j].Labels[axis]
		if name == t.Metric {
			return -1
		}
		name, _, _ = strings.Cut(name, "@")
		if name == results.GlobalView || name == results.PersonalView {
			return 0
		}
		if d, _ := metrics.Find(name); d.Terminal > 0 {
			return d.Terminal
		}
		return math.MaxInt
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	said := map[string]bool{}
	var out []int
	for _, j := range order {
		var same strings.Builder
		for _, r := range t.Rows {
			same.WriteString(t.Text(r.Cells[j]) + "|")
		}
		if !said[same.String()] && len(out) < mostMetrics {
			out = append(out, j)
		}
		said[same.String()] = true
	}
	slices.Sort(out)
	return out
}

// cells are the texts of some columns behind the labels of the rows; the first row is the heads.
func (t *Table) cells(columns []int) [][]string {
	pick := func(labels, all []string) []string {
		for _, j := range columns {
			labels = append(labels, all[j])
		}
		return labels
	}
	n := len(t.RowAxes)
	rows := [][]string{pick(slices.Clone(t.RowAxes), t.Heads()[n:])}
	for _, r := range t.Rows {
		var all []string
		for _, c := range r.Cells {
			text := t.Text(c)
			if c.Best {
				text = "*" + text
			}
			all = append(all, text)
		}
		rows = append(rows, pick(slices.Clone(r.Shown()), all))
	}
	return rows
}

// shorten cuts labels of rows that are wider together than most.
func shorten(rows [][]string, labels, most int) {
	wide, sum := widths(rows), 0
	for _, w := range wide[:labels] {
		sum += w + gap
	}
	if sum <= most {
		return
	}
	for _, r := range rows {
		for i := range r[:labels] {
			r[i] = Truncate(r[i], most/labels-gap)
		}
	}
}

// widths are those of the columns.
func widths(rows [][]string) []int {
	out := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			out[i] = max(out[i], text.RuneWidthWithoutEscSequences(cell))
		}
	}
	return out
}

// Truncate is a text of at most so many columns, with an ellipsis where it was longer.
func Truncate(s string, most int) string {
	if text.RuneWidthWithoutEscSequences(s) <= most {
		return s
	}
	return text.Trim(s, max(1, most-1)) + "…"
}

// gap stands between two columns.
const gap = 2

// blocks cuts rows into tables that are no wider than a terminal, as far as single columns allow it.
func blocks(rows [][]string, labels, width int) [][][]string {
	wide, left := widths(rows), 0
	for _, w := range wide[:labels] {
		left += w + gap
	}
	var out [][][]string
	for from := labels; from < len(wide); {
		to, used := from+1, left+wide[from]
		for to < len(wide) && (width <= 0 || used+gap+wide[to] <= width) {
			used += gap + wide[to]
			to++
		}
		block := make([][]string, len(rows))
		for i, r := range rows {
			block[i] = append(slices.Clone(r[:labels]), r[from:to]...)
		}
		out, from = append(out, block), to
	}
	if out == nil {
		return [][][]string{rows}
	}
	return out
}
