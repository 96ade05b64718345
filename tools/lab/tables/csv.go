package tables

import (
	"encoding/csv"
	"io"
	"math"
	"slices"
	"strconv"
)

// CSV writes one line per cell: the table, a column for each axis, the metric, and the numbers in the table's unit. The
// mean is - for an evaluation that the method does not have. The label is empty for an averaged axis, and for an axis
// outside the table.
func CSV(w io.Writer, tables ...*Table) error {
	var axes []string
	for _, t := range tables {
		for _, a := range slices.Concat(t.axes, t.RowAxes, t.ColAxes) {
			if !slices.Contains(axes, a) && a != MetricAxis && (a != EvaluationAxis || slices.Contains(t.axes, a)) {
				axes = append(axes, a)
			}
		}
	}

	writer := csv.NewWriter(w)
	head := append([]string{"table"}, axes...)
	head = append(head, "metric", "view", "unit", "mean", "std_sample", "seeds", "seeds_planned",
		"paper_mean", "paper_std", "best", "note")
	if err := writer.Write(head); err != nil {
		return err
	}

	for _, t := range tables {
		for cell := range t.cells() {
			if cell.Blank {
				continue
			}
			if err := writer.Write(t.record(*cell, axes)); err != nil {
				return err
			}
		}
	}

	writer.Flush()
	return writer.Error()
}

func (t *Table) record(cell Cell, axes []string) []string {
	out := []string{t.Title}
	for _, a := range axes {
		out = append(out, cell.Labels[a])
	}

	value := number(cell.Mean())
	if cell.Absent {
		value = none
	}

	out = append(out, cell.Metric.Name, cell.View, cell.Unit, value, number(cell.Std()),
		strconv.Itoa(cell.Stat.N()), strconv.Itoa(cell.Planned))
	mean, std, note := math.NaN(), math.NaN(), ""
	if cell.Paper != nil {
		mean = cell.Paper.Mean
		if cell.Paper.HasStd {
			std = cell.Paper.Std
		}
	}

	if cell.Mark > 0 {
		note = t.Notes[cell.Mark-1]
	}

	return append(out, number(mean), number(std), strconv.FormatBool(cell.Best), note)
}

// number formats a number with 12 digits, so that rounding errors do not appear; empty for values that are not numbers.
func number(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(math.Round(v*1e10)/1e10, 'g', 12, 64)
}
