package tables

import (
	"fmt"
	"strconv"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/stats"
)

// Ranks returns the table of a ranking along an axis, with the metric's title in words: a line for each label, the
// best mean rank first, with the metric in each block. With a control, columns have the comparisons with the control
// over runs.
func Ranks(name, axis, title, control string, m results.Metric, r results.Ranking,
	list []results.Comparison) *Table {
	t := &Table{Title: name, RowAxes: []string{axis}}
	t.addColumns("mean rank")
	t.addColumns(r.Blocks...)
	factor, unit := m.Factor(), ""
	if m.Unit == metrics.Percent {
		unit = " (%)"
	}
	if control != "" {
		t.addColumns("over "+control, "p Wilcoxon, Holm")
	}
	var seeds []int // of cells
	for i, label := range r.Labels {
		line := []string{label, strconv.FormatFloat(r.Mean[i], 'f', 1, 64)}
		for j := range r.Blocks {
			s := r.Stats[j][i]
			text := strconv.FormatFloat(factor*s.Mean(), 'f', 1, 64)
			if seeds = append(seeds, s.N()); s.N() > 1 {
				text += " ± " + strconv.FormatFloat(factor*s.Std(), 'f', 1, 64)
			}
			line = append(line, text)
		}
		if control != "" {
			line = append(line, dash, dash)
			for _, c := range list {
				if c.A == label {
					line[len(line)-2], line[len(line)-1] = signed(factor*c.Difference, 1), pValue(c.HolmWilcoxon)
				}
			}
		}
		t.addRow(line)
	}
	t.Caption = []string{fmt.Sprintf("%s%s. %s", capital(title), unit, overSeeds(seeds)), Friedman(r)}
	if control != "" {
		t.Caption = append(t.Caption, fmt.Sprintf("Over %[1]s: mean difference over all pairs of runs of one seed and "+
			"column, with p of the signed-rank test against %[1]s, corrected over the lines of this table. Runs "+
			"of one column are not independent data sets: p speaks of these columns alone.", control))
		t.Caption = append(t.Caption, results.Cautions(list)...)
	}
	if len(r.Unranked) > 0 {
		t.Caption = append(t.Caption, "Not ranked, since a column lacks a run or the evaluation: "+
			strings.Join(r.Unranked, ", ")+".")
	}
	return t
}

// Friedman describes the tests of a ranking, or states that there are too few blocks for tests.
func Friedman(r results.Ranking) string {
	if !stats.EnoughPairs(len(r.Blocks)) {
		return fmt.Sprintf("Ranks of %d over %d: Friedman's test and Nemenyi's critical difference need %d.",
			len(r.Labels), len(r.Blocks), stats.MinPairs)
	}
	return fmt.Sprintf("Friedman's test of %d over %d: chi square %s, p %s; Iman and Davenport's F %s, p %s; "+
		"Nemenyi's critical difference of mean ranks at 0.05: %.1f.", len(r.Labels), len(r.Blocks),
		fixed(r.ChiSquare.Statistic), pValue(r.ChiSquare.P), fixed(r.ImanDavenport.Statistic),
		pValue(r.ImanDavenport.P), r.CriticalDifference)
}
