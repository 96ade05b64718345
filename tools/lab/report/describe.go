package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/runtime/convert"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
)

// fewNamed is the largest number of values that a title or subtitle lists.
const fewNamed = 5

// listed returns up to fewNamed values, else their number with their name.
func listed(values []string, many string) string {
	if len(values) > fewNamed {
		return fmt.Sprintf("%d %s", len(values), many)
	}
	return strings.Join(values, ", ")
}

// series joins words: a, b and c.
func series(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// between returns a number, or the least and the largest of several.
func between(values []string) string {
	slices.SortFunc(values, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	if len(values) == 1 {
		return values[0]
	}
	return values[0] + " to " + values[len(values)-1]
}

// title returns the title of the page, which names the experiments and their data, and the subtitle, which counts the
// rest.
func (r *Report) title() (title, subtitle string) {
	values := r.settings()
	names := convert.Slice(r.Plans, func(p *results.Plan) string { return p.Name })
	methods := r.methods()
	switch loose := r.Of(nil); {
	case len(loose) == 1:
		names = append(names, loose[0].Name)
	case len(loose) > 0 && len(names) == 0:
		names = append(names, listed(methods, "methods"))
	case len(loose) > 0:
		names = append(names, fmt.Sprintf("%d more experiments", len(loose)))
	}

	title = listed(names, "experiments")
	if plan := r.plan(); plan != nil && len(names) == 1 { // sweeps of one file differ in these
		if plan.Smoke {
			title += " (small form)"
		}
		var axes []string
		for _, a := range plan.Axes {
			if len(a.Labels) > 1 {
				axes = append(axes, a.Name)
			}
		}
		if len(axes) > 0 {
			title += " by " + series(axes)
		}
	}

	if sets := values["data.set"]; len(sets) > 0 {
		title += " on " + listed(sets, "data sets")
	}

	parts := []string{r.counted()}
	add := func(n int, one, many string) {
		if n > 1 {
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		} else if n == 1 && one != "" {
			parts = append(parts, one)
		}
	}

	add(len(methods), "", "methods")
	for _, a := range results.Axes(r.Groups) {
		if len(names) == 1 && a.Name != "method" && a.Name != results.RunAxis {
			parts = append(parts, a.Name+" "+listed(a.Labels, "values"))
		}
	}

	if clients := values["partition.clients"]; len(clients) > 0 {
		parts = append(parts, between(clients)+" clients")
	}

	var backbones []string
	for _, list := range values["backbones"] {
		backbones = results.AppendMissing(backbones, strings.Split(strings.Trim(list, "[]"), ", ")...)
	}

	if len(backbones) > 0 {
		parts = append(parts, listed(backbones, "backbones"))
	}

	if rounds := values["train.rounds"]; len(rounds) > 0 {
		parts = append(parts, between(rounds)+" rounds")
	}

	if partitions := values["partition.kind"]; len(partitions) == 1 {
		parts = append(parts, "partition "+partitions[0])
	}

	if rates := values["train.lr"]; len(rates) == 1 {
		parts = append(parts, "learning rate "+rates[0])
	}

	var seeds []string
	for run := range results.Runs(r.Groups) {
		seeds = results.AppendMissing(seeds, fmt.Sprint(run.Seed))
	}

	add(len(seeds), "seed "+strings.Join(seeds, ""), "seeds")
	return title, strings.Join(parts, " · ")
}

// settings returns the values of each setting over all runs, sorted.
func (r *Report) settings() map[string][]string {
	found, read := map[string][]string{}, map[string]bool{}
	for run := range results.Runs(r.Groups) {
		if read[run.Config] {
			continue
		}
		read[run.Config] = true
		for _, s := range results.Settings(run.Config) {
			if s.Value != "" {
				found[s.Key] = results.AppendMissing(found[s.Key], s.Value)
			}
		}
	}

	for _, values := range found {
		slices.Sort(values)
	}

	return found
}

// tables adds the tables to the page. Definitions of columns, and sentences about several tables, stand on the page
// once.
func (r *Report) tables(report *page.Report) {
	main := slices.Concat(r.main, r.more)
	all := slices.Concat(main, r.tests)
	count := map[string]int{}
	for _, t := range all {
		for _, s := range sentences(t) {
			count[s]++
		}
		for _, d := range t.Definitions {
			report.Definitions = results.AppendMissing(report.Definitions, page.Pair{Name: d[0], Value: d[1]})
		}
	}

	said := map[string]bool{}
	for i, table := range all {
		var own []string
		for _, s := range sentences(table) {
			fact := slices.Contains(table.Facts, s)
			if shared := count[s] > 1; shared && !fact && !said[s] {
				report.Reading = append(report.Reading, s)
			} else if !shared || fact && !said[s] {
				own = append(own, s)
			}
			said[s] = true
		}

		shown := pageTable(table)
		shown.Caption = strings.Join(own, " ")
		if len(r.main) == 1 { // the page's title names the sweep
			shown.Title = strings.TrimSuffix(table.Title, ": "+r.plan().Sweep())
		}

		if i < len(r.main) {
			shown.Title = tableTitle(table)
			if len(r.main) > 1 && table.Title != looseRuns {
				shown.Title += ": " + table.Title
			}
		}

		if i < len(main) {
			report.Tables = append(report.Tables, shown)
		} else {
			report.Significance = append(report.Significance, shown)
		}
	}
}

// plan returns the only sweep of the report, or nil.
func (r *Report) plan() *results.Plan {
	if len(r.Plans) == 1 {
		return r.Plans[0]
	}
	return nil
}

// sentences returns the caption of a table on the page, without the definitions of its columns.
func sentences(t *tables.Table) []string {
	return slices.DeleteFunc(t.Sentences("Bold", "", "Below"), func(s string) bool {
		return slices.ContainsFunc(t.Definitions, func(d [2]string) bool { return s == d[0]+": "+d[1]+"." })
	})
}

// tableTitle names the numbers and the axes of a table.
func tableTitle(t *tables.Table) string {
	out, axes := "Metrics", slices.Concat(t.RowAxes, t.ColAxes)
	if m, err := results.ParseMetric(t.Metric); err == nil && !slices.Contains(axes, tables.MetricAxis) {
		out = tables.Capital(m.Title)
		if m.Unit == metrics.Percent {
			out += " (%)"
		}
	}

	axes = slices.DeleteFunc(axes, func(a string) bool { return a == tables.MetricAxis || a == tables.EvaluationAxis })
	if len(axes) == 0 {
		return out
	}

	return out + " by " + series(axes)
}

// pageFigure returns a figure of the page.
func pageFigure(f namedFigure) (out page.Figure, err error) {
	out = page.Figure{Title: f.name, Caption: f.caption, About: f.title}
	if out.SVG, out.Width, err = f.drawn.PageSVG(0); err == nil {
		out.Phone, out.PhoneWidth, err = f.drawn.PageSVG(figures.PhoneWidth)
	}
	return out, err
}
