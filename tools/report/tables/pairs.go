package tables

import (
	"fmt"
	"math"
	"strconv"

	"promptfed/federation/engine/metrics"
	"promptfed/tools/report/results"
)

// Pairs makes the text table of comparisons along an axis, with the metric's title in words: a line for each pair of
// labels.
func Pairs(name, axis string, m results.Metric, title string, list []results.Comparison) *Text {
	t := &Text{Title: name, Texts: 2, Heads: []string{"A", "B", "difference A − B", "95 % interval", "runs", "pairs",
		"Cohen's d", "rank-biserial",
		"p Wilcoxon", "p t test", "p Wilcoxon, Holm", "p t test, Holm"}}
	factor, unit := 1., ""
	if m.Unit() == metrics.Percent {
		factor, unit = 100, " (points)"
	}
	level := results.OverClients
	for _, c := range list {
		level = c.Level
		t.Rows = append(t.Rows, []string{c.A, c.B, fixed(factor * c.Difference), interval(factor*c.Low, factor*c.High),
			strconv.Itoa(c.Runs), strconv.Itoa(c.N),
			fixed(c.Cohen), fixed(c.RankBiserial), pValue(c.Wilcoxon.P), pValue(c.T.P), pValue(c.HolmWilcoxon),
			pValue(c.HolmT)})
	}
	t.Caption = []string{fmt.Sprintf("%s%s, every pair of labels of %s.", capital(title), unit, axis)}
	if level == results.OverClients {
		t.Caption = append(t.Caption, "A pair is one client in two runs of the same seed that differ in nothing else.",
			"Clients of a run share its server, so they are not independent and these p values are too small; the "+
				"interval's bootstrap draws runs first.")
	} else {
		t.Caption = append(t.Caption, "A pair is two runs of the same seed that differ in nothing else.",
			fmt.Sprintf("Nothing is tested with fewer than %d pairs of runs.", results.MinRuns))
	}
	t.Caption = append(t.Caption, "Holm: corrected over the pairs of this table.")
	return t
}

func fixed(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	if v > 0 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return signed(v, 2)
}

func interval(low, high float64) string {
	if math.IsNaN(low) {
		return "–"
	}
	return fixed(low) + " to " + fixed(high)
}

// pValue writes a p value with what matters of it.
func pValue(p float64) string {
	switch {
	case math.IsNaN(p):
		return "–"
	case p < 1e-4:
		return "<0.0001"
	}
	return strconv.FormatFloat(p, 'f', 4, 64)
}
