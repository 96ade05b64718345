package report

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"promptfed/federation/engine/metrics"
	"promptfed/runtime/oneline"
	"promptfed/runtime/ort"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
)

// page returns the content of report.html.
func (r *Report) page() (page.Report, error) {
	report := page.Report{Title: r.heading, Subtitle: r.subtitle, Notes: r.Notes, Environment: environment()}
	if plan := r.plan(); plan != nil {
		report.Card = plan.Card
	}

	r.tables(&report)
	for _, f := range r.figures {
		shown, err := pageFigure(f)
		if err != nil {
			return report, fmt.Errorf("figure %s: %w", f.file, err)
		}
		report.Figures = append(report.Figures, shown)
	}

	curves := r.pageMetrics(&report)
	report.Methods, report.Panels = r.methods(), pagePanels(r.live)
	for _, g := range r.Groups {
		for _, run := range g.Runs {
			shown, known := r.kept[run]
			if !known {
				var err error
				if shown, err = r.pageRun(g, run, curves); err != nil {
					report.Notes = append(report.Notes, oneline.Text(err.Error()))
				}
			}
			report.Runs = append(report.Runs, shown)
		}
	}

	return report, nil
}

// methods lists the trained methods, sorted. Their places are those of their colours.
func (r *Report) methods() []string {
	all := map[string]bool{}
	for _, g := range r.Groups {
		if m := methodOf(g); m != "" {
			all[m] = true
		}
	}
	return results.SortedKeys(all)
}

// methodOf returns the label of an axis of methods, or the group's trained method.
func methodOf(g *results.Group) string { return cmp.Or(g.Labels["method"], g.Method()) }

// counted states the number of runs on the page.
func (r *Report) counted() string {
	n, total := map[results.State]int{}, 0
	for run := range results.Runs(r.Groups) {
		n[run.State]++
	}

	var parts []string
	for _, s := range results.States {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
			total += n[s]
		}
	}

	switch {
	case total == 1:
		return "1 run " + parts[0][2:]
	case len(parts) == 1:
		return strings.Replace(parts[0], " ", " runs ", 1)
	}

	return fmt.Sprintf("%d runs: %s", total, strings.Join(parts, ", "))
}

// pageMetrics lists the metrics of curves that some run has, except metrics of single domains, sets and notes.
func (r *Report) pageMetrics(report *page.Report) []results.Metric {
	var out []results.Metric
	runs := slices.Collect(results.Runs(r.Groups))
	for _, name := range results.RoundMetrics(r.Groups) {
		metric, err := results.ParseMetric(name)
		if err != nil || strings.Contains(name, ":") || !slices.ContainsFunc(runs, func(run *results.Run) bool {
			return len(curveOf(run, metric).Rounds) > 0
		}) {
			continue
		}
		out = append(out, metric)
		unit := metric.Unit
		if unit == metrics.Count {
			unit = metrics.Plain // the title says what is counted
		}
		report.Metrics = append(report.Metrics, page.Metric{Name: name, Title: metric.Heading(), Unit: string(unit),
			Headline: metric.UsesHeadline()})
	}

	return out
}

// groupName returns the name of a group, with its sweep if the page has several.
func (r *Report) groupName(g *results.Group) string {
	if g.Plan == nil || len(r.main) == 1 {
		return g.Name
	}
	return joined(", ", g.Plan.Name, g.Name)
}

func (r *Report) runName(g *results.Group, run *results.Run) string {
	name := r.groupName(g)
	if len(g.Runs) == 1 {
		return name
	}
	return fmt.Sprintf("%s, seed %d", name, run.Seed)
}

func (r *Report) pageRun(g *results.Group, run *results.Run, curves []results.Metric) (page.Run, error) {
	out := page.Run{RunJSON: run.Export(r.folder), Name: r.runName(g, run), Group: r.groupName(g),
		Experiment: g.Experiment, Method: methodOf(g), Sweep: g.Plan.Sweep(), Labels: g.Labels, Planned: run.Planned,
		View: run.View, Tags: run.Tags, Config: run.Config, PerClient: clientCurves(run)}
	for _, m := range curves {
		if c := curveOf(run, m); len(c.Rounds) > 0 {
			factor, _ := scale(m)
			for i := range c.Mean {
				c.Mean[i] *= factor
			}
			out.Curves = append(out.Curves, page.Curve{Metric: m.Name, Rounds: c.Rounds, Values: c.Mean})
		}
	}

	clients, err := run.Clients()
	out.Clients = clients
	if r.live { // the page requests details per run
		if !run.Sign.IsZero() {
			out.Sign, out.Left = run.Sign.Format(time.DateTime), run.Remaining()
		}
		return out, err
	}

	details, wrong := details(run, nil)
	out.Details = details
	return out, errors.Join(err, wrong)
}

// curveOf returns the metric's curve of a single run.
func curveOf(run *results.Run, m results.Metric) results.Curve {
	return results.Curves([]*results.Group{{Runs: []*results.Run{run}}}, m)
}

// clientCurves returns the accuracies of clients in percent; nil if they were not recorded.
func clientCurves(run *results.Run) *page.ClientCurves {
	out := page.ClientCurves{Metric: metrics.Accuracy}
	for i, round := range run.Rounds {
		if round.Evaluation == nil || len(round.Evaluation.PerClient) == 0 {
			continue
		}
		if out.Values == nil {
			out.Values = make([]results.Numbers, len(round.Evaluation.PerClient))
		}
		if len(round.Evaluation.PerClient) != len(out.Values) { // no file of this program has such rounds
			continue
		}
		out.Rounds = append(out.Rounds, i+1)
		for k, v := range round.Evaluation.PerClient {
			out.Values[k] = append(out.Values[k], 100*v)
		}
	}

	if out.Values == nil {
		return nil
	}

	return &out
}

func pageTable(table *tables.Table) page.Table {
	out := page.Table{Title: table.Title}
	meaning := map[string]string{}
	for _, d := range table.Definitions {
		meaning[d[0]] = d[1]
	}

	for _, a := range table.RowAxes {
		out.Columns = append(out.Columns, page.Column{Name: a, Text: true})
	}

	for j := range table.Columns {
		h := table.Head(j)
		out.Columns = append(out.Columns, page.Column{Name: h[len(h)-1], Over: strings.Join(h[:len(h)-1], ", "),
			Meaning: meaning[strings.TrimSuffix(h[len(h)-1], " (%)")]})
	}

	for _, r := range table.Rows {
		row := page.Row{Summary: r.Average}
		for _, l := range r.DisplayLabels() {
			row.Cells = append(row.Cells, page.Cell{Text: l})
		}

		for _, c := range r.Cells {
			s := table.Parts(c)
			cell := page.Cell{Text: s.Mean, Bold: c.Best, Paper: strings.Trim(s.Paper, "()")}
			if s.Std != "" {
				cell.Text += " ± " + s.Std
			}
			if mean := c.Mean(); !math.IsNaN(mean) && !c.Blank {
				cell.Value = &mean
			}
			if c.Mark > 0 {
				cell.Note = table.Notes[c.Mark-1]
			}
			row.Cells = append(row.Cells, cell)
		}

		out.Rows = append(out.Rows, row)
	}

	return out
}

// environment describes the machine and program that made the report.
func environment() []page.Pair {
	out := []page.Pair{{Name: "system", Value: runtime.GOOS + "/" + runtime.GOARCH},
		{Name: "processors", Value: fmt.Sprint(runtime.NumCPU())}, {Name: "Go", Value: runtime.Version()}}
	if _, version, err := ort.Library(); err == nil {
		out = append(out, page.Pair{Name: "ONNX Runtime", Value: version})
	}
	return out
}
