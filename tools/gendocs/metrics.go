package main

import (
	"fmt"
	"math"

	"promptfed/federation/engine/metrics"
)

// metricTable is the glossary of all metrics in the order of columns.
func metricTable() string {
	rows := [][]string{{"metric", "is", "unit, bounds", "better", "window", "merges as", "exists", "privacy"}}
	for _, d := range metrics.Definitions() {
		name := code(d.Form())
		if d.Key != "" && d.Key != d.Name {
			name += ", in records " + code(d.Key)
		}
		better := "higher"
		if d.Lower {
			better = "lower"
		}
		rows = append(rows, []string{name, d.Title, metricBounds(d), better, metrics.DescribeWindow(d.Window),
			d.Merge, d.Exists, d.Privacy})
	}
	return markdown(rows)
}

// metricBounds are the unit of a metric and the bounds of its values.
func metricBounds(d metrics.Definition) string {
	unit := string(d.Unit)
	if d.Unit == metrics.Plain {
		unit = "number"
	}
	switch {
	case d.Unit == metrics.Percent:
		return "share of 1, shown in %"
	case math.IsInf(d.Low, -1):
		return unit
	case math.IsInf(d.High, 1):
		return fmt.Sprintf("%s, at least %v", unit, d.Low)
	}
	return fmt.Sprintf("%s, [%v, %v]", unit, d.Low, d.High)
}
