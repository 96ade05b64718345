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
func Ranks(name, axis, title, control string, m results.Metric, ranking results.Ranking,
	list []results.Comparison) *Table {
	table := &Table{Title: name, RowAxes: []string{axis}}
	table.addColumns("mean rank")
	table.addColumns(ranking.Blocks...)
	factor, unit := m.Factor(), ""
	if m.Unit == metrics.Percent {
		unit = " (%)"
	}

	if control != "" {
		table.addColumns("over "+control, "p Wilcoxon, Holm")
	}

	var seeds []int // of cells
	for i, label := range ranking.Labels {
		line := []string{label, strconv.FormatFloat(ranking.Mean[i], 'f', 1, 64)}
		for j := range ranking.Blocks {
			s := ranking.Stats[j][i]
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

		table.addRow(line)
	}

	table.Caption = []string{fmt.Sprintf("%s%s. %s", Capital(title), unit, overSeeds(seeds)), Friedman(ranking)}
	if control != "" {
		table.Caption = append(table.Caption, fmt.Sprintf("Over %[1]s: mean difference over all pairs of runs of one "+
			"seed "+
			"and column, with p of the signed-rank test against %[1]s, corrected over the lines of this table. Runs "+
			"of one column are not independent data sets: p speaks of these columns alone.", control))
		table.Caption = append(table.Caption, results.Cautions(list)...)
	}

	if len(ranking.Unranked) > 0 {
		table.Caption = append(table.Caption, "Not ranked, since a column lacks a run or the evaluation: "+
			strings.Join(ranking.Unranked, ", ")+".")
	}

	return table
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
