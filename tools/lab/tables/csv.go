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
	c := csv.NewWriter(w)
	head := append([]string{"table"}, axes...)
	head = append(head, "metric", "view", "unit", "mean", "std_sample", "seeds", "seeds_planned",
		"paper_mean", "paper_std", "best", "note")
	if err := c.Write(head); err != nil {
		return err
	}
	for _, t := range tables {
		for cell := range t.cells() {
			if cell.Blank {
				continue
			}
			if err := c.Write(t.record(*cell, axes)); err != nil {
				return err
			}
		}
	}
	c.Flush()
	return c.Error()
}

func (t *Table) record(c Cell, axes []string) []string {
	out := []string{t.Title}
	for _, a := range axes {
		out = append(out, c.Labels[a])
	}
	value := number(c.Mean())
	if c.Absent {
		value = none
	}
	out = append(out, c.Metric.Name, c.View, c.Unit, value, number(c.Std()),
		strconv.Itoa(c.Stat.N()), strconv.Itoa(c.Planned))
	mean, std, note := math.NaN(), math.NaN(), ""
	if c.Paper != nil {
		mean = c.Paper.Mean
		if c.Paper.HasStd {
			std = c.Paper.Std
		}
	}
	if c.Mark > 0 {
		note = t.Notes[c.Mark-1]
	}
	return append(out, number(mean), number(std), strconv.FormatBool(c.Best), note)
}

// number formats a number with 12 digits, so that rounding errors do not appear; empty for values that are not numbers.
func number(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(math.Round(v*1e10)/1e10, 'g', 12, 64)
}
