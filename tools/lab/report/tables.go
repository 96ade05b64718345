package report

import (
	"cmp"
	"slices"

	"promptfed/configs"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/stats"
	"promptfed/tools/lab/tables"
)

// looseRuns is the title of the table of runs outside of sweeps.
const looseRuns = "Runs"

// layout returns the layout of the main table: from the command line, else from the card, else the first axis in rows
// and the second in columns. A single axis stands beside the other results of a run.
func (r *Report) layout(p *results.Plan, groups []*results.Group) tables.Layout {
	layout := r.Layout
	if layout.Title = looseRuns; p != nil {
		layout.Title, layout.Smoke, layout.Card = p.Name, p.Smoke, p.Card
	}

	if c := layout.Card; c != nil {
		layout.Title, layout.Metric, layout.Average = c.Heading(), cmp.Or(layout.Metric,
			c.Metric), cmp.Or(layout.Average, c.Average)
		if len(layout.Rows)+len(layout.Columns) == 0 {
			layout.Rows, layout.Columns = c.Rows, c.Columns
			if r.View == "" && c.Views.Why != "" { // both of our evaluations beside the paper's number
				layout.Rows = append(slices.Clone(c.Rows), tables.EvaluationAxis)
			}
		}
	}

	layout.Metric = cmp.Or(layout.Metric, results.DefaultMetric(groups))
	layout.Metrics = results.MainMetrics(layout.Metric, groups)
	if layout.Card != nil && len(layout.Card.Metrics) > 0 && r.Metric == "" {
		layout.Metrics = layout.Card.Metrics
	}

	if len(layout.Rows)+len(layout.Columns) == 0 {
		axes := results.Axes(groups)
		layout.Columns = []string{tables.MetricAxis}
		if len(axes) > 0 {
			layout.Rows = []string{axes[0].Name}
		}
		if len(axes) > 1 {
			layout.Columns = []string{axes[1].Name}
		}
	}

	return layout
}

// wholeLayout returns the layout of the table with a line for every point of the grid and a column for every metric.
func (r *Report) wholeLayout(p *results.Plan, groups []*results.Group, main tables.Layout) tables.Layout {
	l := tables.Layout{Title: "All metrics", Metric: main.Metric, Metrics: results.MainMetrics(main.Metric, groups),
		Columns: []string{tables.MetricAxis}, Second: main.Second, Smoke: main.Smoke}
	if p != nil {
		l.Title += ": " + p.Name
	}

	for _, a := range results.Axes(groups) {
		l.Rows = append(l.Rows, a.Name)
	}

	return l
}

// mostCompared is the largest number of labels for pairwise comparisons, and longestPairs the largest number of lines
// in a table of comparisons.
const (
	mostCompared = 40
	longestPairs = 200
)

// compare tests every two labels of the contest, paired over clients and over runs. If the runs have both evaluations
// as headlines, it tests accuracies in each of the two.
func (v *view) compare() {
	if v.labels = results.Labels(v.groups, v.axis); len(v.labels) < 2 {
		return
	}

	if v.control() == "" && len(v.labels) > mostCompared {
		v.note("%d labels of %s are too many for pairwise comparisons (at most %d); card.control names one that all "+
			"others are compared with", len(v.labels), v.axis, mostCompared)
		return
	}

	v.pairs = map[string]map[results.Level][]results.Comparison{}
	for _, m := range v.each(v.metric) {
		v.pairs[m.Name] = map[results.Level][]results.Comparison{}
		for _, level := range []results.Level{results.OverClients, results.OverRuns} {
			v.compareIn(m, level)
		}
	}
}

// compared names the labels that are compared.
func (v *view) compared() string {
	return cmp.Or(map[string]string{"method": "methods", results.RunAxis: "runs"}[v.axis], "labels of "+v.axis)
}

// control returns the card's reference label for all comparisons; empty for pairwise comparisons.
func (v *view) control() string {
	if v.plan == nil || v.plan.Card == nil || !slices.Contains(v.labels, v.plan.Card.Control) {
		return ""
	}
	return v.plan.Card.Control
}

// rank adds the tables of ranks if the card has their figure.
func (v *view) rank(card *configs.PaperTable) {
	if card == nil || !slices.ContainsFunc(card.Figures,
		func(f configs.Figure) bool { return f.Kind == configs.RanksFigure }) {
		return
	}

	for _, m := range v.each(v.metric) {
		if r, ok := results.Rank(v.groups, v.axis, m); ok {
			v.json.AddRanking(v.plan, v.axis, m, r)
			v.tests = append(v.tests, tables.Ranks("Ranks"+evaluationOf(m.Views(v.groups))+": "+v.name(), v.axis,
				m.TitleOf(v.groups), v.control(), m, r, v.pairs[m.Name][results.OverRuns]))
		}
	}
}

// each returns a metric in both evaluations if the headlines of the runs differ, else the metric alone.
func (v *view) each(m results.Metric) []results.Metric {
	if len(m.Views(v.groups)) < 2 {
		return []results.Metric{m}
	}
	return []results.Metric{m.InEvaluation(results.GlobalView), m.InEvaluation(results.PersonalView)}
}

func (v *view) compareIn(metric results.Metric, level results.Level) {
	list := results.Compare(v.groups, v.axis, v.control(), metric, level)
	v.json.Add(v.plan, v.axis, metric, list)
	v.pairs[metric.Name][level] = list
	some := slices.DeleteFunc(slices.Clone(list), func(c results.Comparison) bool { return c.N == 0 })
	if len(some) == 0 || level == results.OverClients && !slices.ContainsFunc(some,
		func(c results.Comparison) bool { return stats.EnoughPairs(c.Runs) }) {
		return // with few runs, clients show the same as the runs
	}

	if len(some) > longestPairs {
		some = some[:longestPairs]
		v.note("the first %d of %d comparisons are in the table; report.json has all", longestPairs, len(list))
	}

	title := "Differences between " + v.compared() + ", paired over " +
		string(level) + evaluationOf(metric.Views(v.groups))
	if v.plan != nil {
		title += ": " + v.name()
	}

	v.tests = append(v.tests, tables.Pairs(title, results.Paired(v.groups, v.axis, v.control()), metric,
		metric.TitleOf(v.groups), some))
}

// evaluationOf returns the name of an evaluation for a title; empty for none and for both.
func evaluationOf(views []string) string {
	if len(views) != 1 {
		return ""
	}
	return ", " + views[0] + " evaluation"
}
