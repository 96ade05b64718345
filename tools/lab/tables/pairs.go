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

// Pairs returns the table of comparisons, with the metric's title and its pairs (results.Paired) in words: a line for
// each pair of labels. It omits columns without any value.
func Pairs(name, paired string, m results.Metric, title string, list []results.Comparison) *Table {
	factor, unit := 1., ""
	if m.Unit == metrics.Percent {
		factor, unit = 100, " (points)"
	}

	overClients := len(list) > 0 && list[0].Level == results.OverClients
	table := &Table{Title: name, RowAxes: []string{"A", "B"}}
	heads := []string{"difference A − B", "N, pairs of runs", "pairs of clients", "95 % interval", "Cohen's d",
		"rank-biserial", "p Wilcoxon", "p t test", "p Wilcoxon, Holm", "p t test, Holm"}
	shown := make([]bool, len(heads))
	rows := make([][]string, len(list))

	for i, c := range list {
		clients := dash
		if overClients {
			clients = strconv.Itoa(c.N)
		}
		rows[i] = []string{fixed(factor * c.Difference), strconv.Itoa(c.Runs), clients,
			interval(factor*c.Low, factor*c.High), fixed(c.Cohen), fixed(c.RankBiserial), pValue(c.Wilcoxon.P),
			pValue(c.T.P), pValue(c.HolmWilcoxon), pValue(c.HolmT)}
		for j, text := range rows[i] {
			shown[j] = shown[j] || text != dash
		}
	}

	kept := func(texts []string) (out []string) {
		for j, text := range texts {
			if shown[j] {
				out = append(out, text)
			}
		}
		return out
	}

	table.addColumns(kept(heads)...)
	for i, c := range list {
		table.addRow(append([]string{c.A, c.B}, kept(rows[i])...))
	}

	table.Caption = append([]string{fmt.Sprintf("%s%s, %s", Capital(title), unit, paired)}, results.Cautions(list)...)
	switch {
	case overClients:
		table.Caption = append(table.Caption, "Clients of a run share its server and its seed: they are described, "+
			"and no test is made of them. The interval's bootstrap draws runs first.")
	case slices.ContainsFunc(list, func(c results.Comparison) bool { return stats.EnoughPairs(c.Runs) }):
		table.Caption = append(table.Caption, "Holm: corrected over the pairs of this table.")
	}

	return table
}

// dash marks an undefined number.
const dash = "–"

func fixed(v float64) string {
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
