package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/lab/figures"
	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
)

// File names of the page and of the content for other programs.
const (
	Page     = "report.html"
	JSONFile = "report.json"
)

// Formats are the file formats of a report.
var Formats = []string{"md", "tex", "csv", "json", "html", "plots"}

// Options are the settings of a report. Runs and sweeps write their own report with Standard.
type Options struct {
	tables.Layout        // of the main table; empty fields are those of the card, or the usual ones
	View          string // eval.view for all runs; empty: each run's own
	Formats       []string
	Merge         bool // all sweeps are one
}

// Standard returns the default options.
func Standard() Options { return Options{Formats: Formats} }

// Check returns an error that names the flag of promptfed report with a wrong value.
func (o Options) Check() error {
	if o.Metric != "" {
		if _, err := results.ParseMetric(o.Metric); err != nil {
			return fmt.Errorf("--metric: %w", err)
		}
	}

	for _, w := range []struct {
		flag, is string
		known    []string
	}{{"--average", o.Average, []string{"", "row", "column", "both"}},
		{"--view", o.View, append([]string{""}, record.Views()...)}} {
		if !slices.Contains(w.known, w.is) {
			return fmt.Errorf("%s %q: use %s", w.flag, w.is, strings.TrimPrefix(strings.Join(w.known, ", "), ", "))
		}
	}

	for _, f := range o.Formats {
		if !slices.Contains(Formats, f) {
			return fmt.Errorf("--format %q: use %s", f, strings.Join(Formats, ", "))
		}
	}

	return nil
}

// Report is the common data of all formats.
type Report struct {
	Options
	*results.Results
	main     []*tables.Table // one per part: a sweep, or the runs without a sweep
	more     []*tables.Table
	tests    []*tables.Table
	figures  []namedFigure
	json     *results.JSON
	heading  string                    // of the page
	subtitle string                    // of the page
	folder   string                    // of the report, absolute
	live     bool                      // the page is served, and requests details
	kept     map[*results.Run]page.Run // runs of a served page as packed earlier
}

// New returns the report on the runs and sweeps in some folders. Write writes its files into the folder out.
func New(ctx context.Context, dirs []string, out string, options Options) (*Report, error) {
	load := results.Load
	if options.Merge {
		load = results.LoadMerged
	}

	found, err := load(dirs...)
	if err != nil {
		return nil, err
	}

	found.Groups = slices.DeleteFunc(found.Groups, func(g *results.Group) bool {
		return slices.ContainsFunc(g.Runs, func(r *results.Run) bool { return r.Joined })
	})
	if len(found.Groups) == 0 {
		return nil, fmt.Errorf("%w with rounds in %s: a client's folder has none; promptfed predict and export take it",
			results.ErrNoRuns, strings.Join(dirs, ", "))
	}

	folder, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}

	r := &Report{Options: options, Results: found, folder: folder}
	return r, r.build(ctx)
}

// build computes the common data of the files.
func (r *Report) build(ctx context.Context) error {
	r.Select(r.View)
	r.json = r.Export(r.folder)
	r.heading, r.subtitle = r.title()
	for _, p := range append(slices.Clone(r.Plans), nil) {
		if groups := r.Of(p); len(groups) > 0 {
			if err := r.part(ctx, p, groups); err != nil {
				return err
			}
		}
	}

	r.json.Notes = append(r.json.Notes, r.Notes...)
	return nil
}

// part makes the tables, tests and figures of a sweep, or of the runs without a sweep.
func (r *Report) part(ctx context.Context, plan *results.Plan, groups []*results.Group) error {
	layout := r.layout(plan, groups)
	main, err := tables.Build(groups, layout)
	if err != nil {
		return err
	}

	r.main = append(r.main, main)
	whole := r.wholeLayout(plan, groups, layout)
	if !slices.Equal(whole.Rows, layout.Rows) || !slices.Equal(whole.Columns, layout.Columns) {
		t, err := tables.Build(groups, whole)
		if err != nil {
			return err
		}
		r.more = append(r.more, t)
	}

	view := view{Report: r, plan: plan, groups: groups, axis: contest(groups, layout.Card)}
	if view.metric, err = results.ParseMetric(main.Metric); err != nil {
		return err
	}

	has := func(g *results.Group) bool { return g.Stat(view.metric).N() > 0 }
	if r.Metric != "" && !slices.ContainsFunc(groups, has) {
		view.note("%s: no finished run has %s", view.name(), r.Metric)
	}

	chosen := r.Metric != "" || layout.Card != nil && layout.Card.Metric != ""
	if w := results.Windows(groups); len(w) > 1 && !chosen {
		view.note("%s: eval.last and eval.select make %s the results of runs: %s is shown of all; choose another with "+
			"--metric", view.name(), strings.Join(w, " and "), main.Metric)
	}

	for _, m := range append(view.each(view.metric), view.metric) {
		r.json.Measure(m)
	}

	view.weakTerms(main)
	view.belowZeroShot(main)
	view.compare()
	view.rank(layout.Card)
	if slices.Contains(r.Formats, "plots") || slices.Contains(r.Formats, "html") {
		view.draw(ctx, layout.Card)
	}

	return ctx.Err()
}

// Tables returns the main tables: one for each sweep, and one for the runs without a sweep.
func (r *Report) Tables() []*tables.Table { return r.main }

// Content returns the content of report.json.
func (r *Report) Content() *results.JSON { return r.json }

// Write writes the files of the formats into the report's folder, which it creates if necessary. It returns their names
// in the folder.
func (r *Report) Write(ctx context.Context) ([]string, error) {
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the report folder: %w; use another --out", err)
	}

	plots := filepath.Join(r.folder, "plots")
	atomicfile.Sweep(r.folder, atomicfile.Abandoned, ".tables.*.tmp", ".report.*.tmp")
	atomicfile.Sweep(plots, atomicfile.Abandoned, ".*.tmp")

	has := func(f string) bool { return slices.Contains(r.Formats, f) }
	numbers := slices.Concat(r.main, r.more)
	all := slices.Concat(numbers, r.tests)
	short := slices.DeleteFunc(slices.Clone(all), func(t *tables.Table) bool { return len(t.Rows) > longestTable })
	var errs []error
	var written []string
	file := func(format, name string, write func(w io.Writer) error) {
		if has(format) {
			errs = append(errs, atomicfile.Write(filepath.Join(r.folder, name), write))
			written = append(written, name)
		}
	}

	file("md", "tables.md", func(w io.Writer) error { return tables.Markdown(w, all...) })
	file("tex", "tables.tex", func(w io.Writer) error {
		fmt.Fprintf(w, "%% needs \\usepackage{booktabs}; tables of more than %d lines are in tables.md and "+
			"tables.csv only\n", longestTable)
		return tables.LaTeX(w, short...)
	})

	file("csv", "tables.csv", func(w io.Writer) error { return tables.CSV(w, numbers...) })
	file("json", JSONFile, atomicfile.JSON(r.json, "  "))
	file("html", Page, func(w io.Writer) error {
		p, err := r.page()
		if err != nil {
			return err
		}
		return page.Write(w, p)
	})

	if has("plots") {
		for _, f := range r.figures {
			if ctx.Err() != nil {
				return written, ctx.Err()
			}
			errs = append(errs, figures.Save(f.drawn, plots, f.file))
			written = append(written, "plots/"+f.file+".png", "plots/"+f.file+".svg")
		}
	}

	return written, errors.Join(errs...)
}

// longestTable is the largest number of table lines that fit on a page of paper.
const longestTable = 60

// contest returns the axis of the compared labels: the axis of methods, else the first of the card's rows, else the
// first axis.
func contest(groups []*results.Group, card *configs.PaperTable) string {
	has := func(name string) bool { return results.Labels(groups, name) != nil }
	switch axes := results.Axes(groups); {
	case has("method"):
		return "method"
	case card != nil && len(card.Rows) > 0 && has(card.Rows[0]):
		return card.Rows[0]
	case len(axes) > 0:
		return axes[0].Name
	}

	return ""
}

// Text returns the main tables for a terminal, and the notes.
func (r *Report) Text(view tables.View) string {
	var out strings.Builder
	hidden := 0
	for i, t := range r.main {
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(t.Terminal(view))
		hidden += t.Hidden()
	}

	for _, n := range r.Notes {
		out.WriteString("note: " + n + "\n")
	}

	if hidden > 0 && !view.All {
		out.WriteString("--all-metrics shows more columns, --definitions explains them (also for promptfed report).\n")
	}

	return out.String()
}
