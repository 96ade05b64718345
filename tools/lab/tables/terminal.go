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

// View is the settings for a table on a terminal.
type View struct {
	Width       int  // columns of the terminal; 0 means unlimited
	All         bool // every metric instead of mostMetrics
	Definitions bool // add the definitions of the numbers, in sentences
}

// mostMetrics is the default number of metrics side by side.
const mostMetrics = 5

// Terminal returns the table as text. A table wider than the terminal is split into blocks of columns, each with the
// rows' labels.
func (t *Table) Terminal(view View) string {
	columns := t.metrics(view.All)
	var out strings.Builder
	out.WriteString(t.Title + "\n")
	rows := t.texts(columns)
	if view.Width > 0 {
		shorten(rows, len(t.RowAxes), max(16, view.Width/2))
	}

	for i, block := range blocks(rows, len(t.RowAxes), view.Width) {
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(PlainText(block, len(t.RowAxes)))
	}

	sentences := slices.Clone(t.Facts)
	if view.Definitions {
		sentences = t.Sentences("", "", "")
	}

	legend := *t
	legend.Caption = nil
	for _, s := range append(sentences, legend.Sentences("*", "", "In brackets")...) {
		out.WriteString(s + "\n")
	}

	for i, n := range t.Notes {
		if slices.ContainsFunc(columns, func(j int) bool { return t.marks(j, i+1) }) {
			fmt.Fprintf(&out, "[%d] %s\n", i+1, n)
		}
	}

	return out.String()
}

// marks reports whether a cell of a column has the mark of a note.
func (t *Table) marks(column, note int) bool {
	return slices.ContainsFunc(t.Rows, func(r Row) bool { return r.Cells[column].Mark == note })
}

// Hidden returns the number of columns that a view without All omits.
func (t *Table) Hidden() int { return len(t.Columns) - len(t.metrics(false)) }

// metrics returns the visible columns in their order. Unless all is set these are at most mostMetrics: the table's own
// metric, both evaluations, the terminal's preferred metrics (metrics.Definition.Terminal), then others. A column with
// the same texts as an earlier one is omitted.
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

// texts returns the texts of some columns after the labels of the rows; the first row is the heads.
func (t *Table) texts(columns []int) [][]string {
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
		rows = append(rows, pick(slices.Clone(r.DisplayLabels()), all))
	}

	return rows
}

// shorten shortens labels of rows whose total width exceeds most.
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
			r[i] = text.Snip(r[i], max(2, most/labels-gap), "…")
		}
	}
}

// widths returns the widths of the columns.
func widths(rows [][]string) []int {
	out := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			out[i] = max(out[i], text.RuneWidthWithoutEscSequences(cell))
		}
	}
	return out
}

// gap is the distance between two columns.
const gap = 2

// blocks splits rows into tables no wider than the terminal, unless a single column is wider.
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
