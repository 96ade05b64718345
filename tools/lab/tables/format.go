package tables

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"promptfed/runtime/convert"
	"promptfed/tools/lab/results"
)

// decimals returns the number of decimals for a unit.
func decimals(unit string) int {
	switch unit {
	case "bytes", "count":
		return 0
	case "":
		return 4
	}
	return 2
}

// CellParts is the parts of a cell's text, which each format combines in its own way.
type CellParts struct {
	Mean  string // a dash for a missing value, a hyphen if the method cannot have one; empty in a blank cell
	Std   string // empty for fewer than two seeds
	Paper string // the paper's number and the difference, in brackets; empty without a paper number
	Mark  string // such as "[1]"; empty if nothing is missing
}

// none marks an evaluation that a method does not have; a dash marks a missing value.
const none = "-"

// Parts returns the parts of a cell's text.
func (t *Table) Parts(cell Cell) CellParts {
	var cellParts CellParts
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', decimals(cell.Unit), 64) }
	switch {
	case cell.Literal != "":
		cellParts.Mean = cell.Literal
	case cell.Blank:
	case cell.Absent:
		cellParts.Mean = none
	case cell.Stat.N() == 0:
		cellParts.Mean = dash
	default:
		cellParts.Mean = number(cell.Mean())
		if std := cell.Std(); !math.IsNaN(std) {
			cellParts.Std = number(std)
		}
	}

	if n := cell.Paper; n != nil && !cell.Blank {
		cellParts.Paper = short(n.Mean)
		if n.HasStd {
			cellParts.Paper += " ± " + short(n.Std)
		}
		if n.Comparable && cell.Stat.N() > 0 {
			cellParts.Paper += ", " + signed(cell.Mean()-n.Mean, decimals(cell.Unit))
		}
		cellParts.Paper = "(" + cellParts.Paper + ")"
	}

	if cell.Mark > 0 {
		cellParts.Mark = fmt.Sprintf("[%d]", cell.Mark)
	}

	return cellParts
}

// Text returns the cell as one line without emphasis.
func (t *Table) Text(c Cell) string {
	p := t.Parts(c)
	text := p.Mean
	if p.Std != "" {
		text += " ± " + p.Std
	}
	return join(text, p.Paper, p.Mark)
}

// join joins the non-empty texts with spaces.
func join(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), " ")
}

// short formats a number with all its digits.
func short(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// signed formats a difference with its sign.
func signed(v float64, decimals int) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', decimals, 64)
	switch zero := strconv.FormatFloat(0, 'f', decimals, 64); {
	case math.IsNaN(v):
		return dash
	case s == zero:
		return s
	case v < 0:
		return "−" + s
	}

	return "+" + s
}

// Capital returns a text that begins with a capital.
func Capital(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + s[n:]
}

// values returns labels in the order of the axes.
func values(axes []string, labels map[string]string) []string {
	return convert.Slice(axes, func(a string) string { return labels[a] })
}

func merge(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// Heads returns the heads of all columns: first of the row labels, then of the numbers.
func (t *Table) Heads() []string {
	out := slices.Clone(t.RowAxes)
	for j := range t.Columns {
		out = append(out, strings.Join(t.Head(j), ", "))
	}
	return out
}

// Head returns the displayed labels of a column. An average has a single label. A metric has its unit, and its window
// if the window differs from the table's.
func (t *Table) Head(column int) []string {
	h := t.Columns[column]
	switch {
	case len(h.Labels) == 0:
		return []string{t.Metric}
	case h.Average:
		return h.Labels[:1]
	}

	labels := slices.Clone(h.Labels)
	for i, axis := range t.ColAxes {
		if labels[i] != AverageLabel && labels[i] != "" && t.bare(i) {
			labels[i] = axis + " = " + labels[i]
		}
	}

	if i := slices.Index(t.ColAxes, MetricAxis); i >= 0 && len(t.Rows) > 0 {
		unit := t.Rows[0].Cells[column].Unit
		if unit == labels[i] {
			unit = "" // as bytes
		}
		m, known := results.ParseMetric(labels[i])
		if own, err := results.ParseMetric(t.Metric); known == nil && err == nil {
			labels[i] = m.ColumnHead(own)
		}
		if unit != "" {
			labels[i] += " (" + unit + ")"
		}
	}

	return labels
}

// bare reports whether labels of an axis of the columns need the name of the axis.
func (t *Table) bare(axis int) bool {
	labels := convert.Slice(t.Columns, func(h Head) string { return h.Labels[axis] })
	return results.NeedAxisName(labels)
}

// DisplayLabels returns the displayed labels of a row. An average has a single label.
func (r Row) DisplayLabels() []string {
	if !r.Average {
		return r.Labels
	}

	out := make([]string, len(r.Labels))
	if len(out) > 0 {
		out[0] = r.Labels[0]
	}

	return out
}
