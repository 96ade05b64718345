package tables

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"promptfed/federation/engine/metrics"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/stats"
)

// Pairs returns the text table of comparisons along an axis, with the metric's title in words: a line for each pair of
// labels. It omits columns without any value.
func Pairs(name, axis string, m results.Metric, title string, list []results.Comparison) *Text {
	factor, unit := 1., ""
	if m.Unit() == metrics.Percent {
		factor, unit = 100, " (points)"
	}
	t := &Text{Title: name, Texts: 2, Heads: []string{"A", "B"}}
	for _, c := range list {
		t.Rows = append(t.Rows, []string{c.A, c.B})
	}
	level := results.OverRuns
	if len(list) > 0 {
		level = list[0].Level
	}
	for _, column := range []struct {
		head string
		of   func(c results.Comparison) string
	}{
		{"difference A − B", func(c results.Comparison) string { return fixed(factor * c.Difference) }},
		{"N, pairs of runs", func(c results.Comparison) string { return strconv.Itoa(c.Runs) }},
		{"pairs of clients", func(c results.Comparison) string {
			if level == results.OverRuns {
				return dash
			}
			return strconv.Itoa(c.N)
		}},
		{"95 % interval", func(c results.Comparison) string { return interval(factor*c.Low, factor*c.High) }},
		{"Cohen's d", func(c results.Comparison) string { return fixed(c.Cohen) }},
		{"rank-biserial", func(c results.Comparison) string { return fixed(c.RankBiserial) }},
		{"p Wilcoxon", func(c results.Comparison) string { return pValue(c.Wilcoxon.P) }},
		{"p t test", func(c results.Comparison) string { return pValue(c.T.P) }},
		{"p Wilcoxon, Holm", func(c results.Comparison) string { return pValue(c.HolmWilcoxon) }},
		{"p t test, Holm", func(c results.Comparison) string { return pValue(c.HolmT) }},
	} {
		cells, any := make([]string, len(list)), false
		for i, c := range list {
			cells[i] = column.of(c)
			any = any || cells[i] != dash
		}
		if !any {
			continue
		}
		t.Heads = append(t.Heads, column.head)
		for i := range cells {
			t.Rows[i] = append(t.Rows[i], cells[i])
		}
	}
	t.Caption = []string{fmt.Sprintf("%s%s, every pair of labels of %s.", capital(title), unit, axis),
		"A pair of runs has the same seed and differs in nothing else."}
	t.Caption = append(t.Caption, results.Cautions(list)...)
	switch {
	case level == results.OverClients:
		t.Caption = append(t.Caption, "Clients of a run share its server and its seed: they are described, and no "+
			"test is made of them. The interval's bootstrap draws runs first.")
	case slices.ContainsFunc(list, func(c results.Comparison) bool { return stats.EnoughPairs(c.Runs) }):
		t.Caption = append(t.Caption, "Holm: corrected over the pairs of this table.")
	}
	return t
}

// dash marks an undefined number.
const dash = "–"

func fixed(v float64) string {
	if math.IsNaN(v) {
		return dash
	}
	if v > 0 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return signed(v, 2)
}

func interval(low, high float64) string {
	if math.IsNaN(low) {
		return dash
	}
	return fixed(low) + " to " + fixed(high)
}

// pValue formats a p value briefly.
func pValue(p float64) string {
	switch {
	case math.IsNaN(p):
		return dash
	case p < 1e-4:
		return "<0.0001"
	}
	return strconv.FormatFloat(p, 'f', 4, 64)
}
