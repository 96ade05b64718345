package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/tools/report/figures"
	"promptfed/tools/report/page"
	"promptfed/tools/report/results"
	"promptfed/tools/report/tables"
)

// reportOptions are what the command line asks of a report. The zero value is what a run and a sweep write by
// themselves.
type reportOptions struct {
	metric        string
	rows, columns []string
	average       string
	std           string
	second        bool
	view          string // eval.view of all runs; empty for that of each
	formats       []string
}

// reportFormats are the kinds of files of a report.
var reportFormats = []string{"md", "tex", "csv", "json", "html", "plots"}

func reportCommand() *cobra.Command {
	var o reportOptions
	var out string
	var shown shownFlags
	c := &cobra.Command{
		Use: "report DIR... [--out DIR] [--metric NAME] [--rows AXIS,...] [--columns AXIS,...] [--format " +
			strings.Join(reportFormats, ",") + "]",
		Args: atLeast(1), Short: "tables, figures and tests of run folders and sweeps, and one page with all of it",
	}
	c.Flags().StringVar(&out, "out", "", "folder of the report (default DIR; of several, runs/comparison)")
	c.Flags().StringVar(&o.metric, "metric", "", "what the tables show: "+strings.Join(results.MetricNames(), ", "))
	c.Flags().StringSliceVar(&o.rows, "rows", nil, "axes in the rows; also domain, set, metric")
	c.Flags().StringSliceVar(&o.columns, "columns", nil, "axes in the columns; axes in neither are averaged over")
	c.Flags().StringVar(&o.average, "average", "", "add means: row, column or both")
	c.Flags().StringVar(&o.std, "std", string(results.Population), "standard deviation over seeds: population (n, as "+
		"numpy) or sample (n-1)")
	c.Flags().BoolVar(&o.second, "second", false, "underline the second best")
	c.Flags().StringVar(&o.view, "view", "", "the evaluation that results are of, in place of the runs' eval.view: "+
		strings.Join(record.Views(), ", "))
	c.Flags().StringSliceVar(&o.formats, "format", reportFormats, "what to write")
	shown.add(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return usageError{err}
		}
		if out == "" && len(args) == 1 {
			out = args[0]
		} else if out == "" {
			out = comparisonFolder
		}
		r, err := makeReport(args, out, o)
		if err != nil {
			return err
		}
		r.show(shown)
		fmt.Printf("report written to %s; %s shows it\n", out, filepath.Join(out, reportPage))
		return nil
	}
	return c
}

const comparisonFolder = "runs/comparison"

// reportPage is the page of a report.
const reportPage = "report.html"

func (o reportOptions) check() error {
	if o.metric != "" {
		if _, err := results.ParseMetric(o.metric); err != nil {
			return fmt.Errorf("--metric: %w", err)
		}
	}
	for _, w := range []struct {
		flag, is string
		known    []string
	}{{"--average", o.average, []string{"", "row", "column", "both"}}, {"--std", o.std,
		[]string{string(results.Population), string(results.Sample)}},
		{"--view", o.view, append([]string{""}, record.Views()...)}} {
		if !slices.Contains(w.known, w.is) {
			return fmt.Errorf("%s %q: take %s", w.flag, w.is, strings.TrimPrefix(strings.Join(w.known, ", "), ", "))
		}
	}
	for _, f := range o.formats {
		if !slices.Contains(reportFormats, f) {
			return fmt.Errorf("--format %q: take %s", f, strings.Join(reportFormats, ", "))
		}
	}
	return nil
}

// writeReports writes everything that there is to say about the runs and sweeps in some folders.
func writeReports(dirs []string, out string) (*report, error) {
	return makeReport(dirs, out, reportOptions{std: string(results.Population), formats: reportFormats})
}

// report is what all formats are made of.
type report struct {
	reportOptions
	*results.Results
	main    []*tables.Table // one for each part: a sweep, or the runs that belong to none
	more    []*tables.Table
	tests   []*tables.Text
	figures []namedFigure
	json    *results.JSON
	folder  string                    // of the report
	live    bool                      // the page is served, and asks for details
	kept    map[*results.Run]page.Run // of a served page: runs as they were packed before
}

func makeReport(dirs []string, out string, o reportOptions) (*report, error) {
	found, err := results.Load(dirs...)
	if err != nil {
		return nil, usageError{err}
	}
	folder, err := filepath.Abs(out)
	if err != nil {
		return nil, err
	}
	r := &report{reportOptions: o, Results: found, folder: folder}
	if err := r.build(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the folder of the report: %w; use another --out", err)
	}
	return r, r.write(out)
}

// build makes everything that the files are written from.
func (r *report) build() error {
	r.Select(r.view)
	r.json = r.Export(r.folder)
	for _, p := range append(slices.Clone(r.Plans), nil) {
		if groups := r.Of(p); len(groups) > 0 {
			if err := r.part(p, groups); err != nil {
				return usageError{err}
			}
		}
	}
	return nil
}

// part makes the tables, tests and figures of a sweep, or of the runs that belong to none.
func (r *report) part(p *results.Plan, groups []*results.Group) error {
	l := r.layout(p, groups)
	main, err := tables.Build(groups, l)
	if err != nil {
		return err
	}
	r.main = append(r.main, main)
	whole := r.wholeLayout(p, groups, l)
	if !slices.Equal(whole.Rows, l.Rows) || !slices.Equal(whole.Columns, l.Columns) {
		t, err := tables.Build(groups, whole)
		if err != nil {
			return err
		}
		r.more = append(r.more, t)
	}
	v := view{report: r, plan: p, groups: groups, spread: results.Spread(r.std), name: partName(p),
		axis: contest(groups, l.Card)}
	if v.metric, err = results.ParseMetric(main.Metric); err != nil {
		return err
	}
	v.weakTerms(main)
	v.compare()
	if slices.Contains(r.formats, "plots") || slices.Contains(r.formats, "html") {
		v.draw(l.Card)
	}
	return nil
}

// write writes the files of the formats.
func (r *report) write(out string) error {
	has := func(f string) bool { return slices.Contains(r.formats, f) }
	all := append(slices.Clone(r.main), r.more...)
	var writable, short []tables.Writable
	add := func(t tables.Writable, lines int) {
		writable = append(writable, t)
		if lines <= longestTable {
			short = append(short, t)
		}
	}
	for _, t := range all {
		add(t, len(t.Rows))
	}
	for _, t := range r.tests {
		add(t, len(t.Rows))
	}
	var errs []error
	file := func(format, name string, write func(w io.Writer) error) {
		if has(format) {
			var b bytes.Buffer
			err := write(&b)
			if err == nil {
				err = writeFile(filepath.Join(out, name), b.Bytes())
			}
			errs = append(errs, err)
		}
	}
	file("md", "tables.md", func(w io.Writer) error { return tables.Markdown(w, writable...) })
	file("tex", "tables.tex", func(w io.Writer) error {
		fmt.Fprintf(w, "%% needs \\usepackage{booktabs}; tables of more than %d lines are in tables.md and "+
			"tables.csv only\n", longestTable)
		return tables.LaTeX(w, short...)
	})
	file("csv", "tables.csv", func(w io.Writer) error { return tables.CSV(w, all...) })
	file("json", "report.json", func(w io.Writer) error {
		b, err := r.json.Bytes()
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
	file("html", reportPage, func(w io.Writer) error {
		p, err := r.page()
		if err != nil {
			return err
		}
		return page.Write(w, p)
	})
	if has("plots") {
		for _, f := range r.figures {
			errs = append(errs, figures.Save(f.drawn, filepath.Join(out, "plots"), f.file))
		}
	}
	return errors.Join(errs...)
}

// longestTable is how many lines of a table still fit on a page of paper.
const longestTable = 60

// partName is the prefix of a part's figures where there may be several sweeps; empty for runs that belong to none.
func partName(p *results.Plan) string {
	if p == nil {
		return ""
	}
	return p.Name
}

// contest is the axis whose labels are compared: that of methods, or the first of the card's rows, or the first.
func contest(groups []*results.Group, card *configs.Card) string {
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
