package report

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/tools/lab/report"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/cli"
)

func reportCommand() *cobra.Command {
	var o report.Options
	var out string
	var view cli.View
	c := &cobra.Command{
		Use: "report DIR... [--out DIR] [--metric NAME] [--rows AXIS,...] [--columns AXIS,...] [--merge] [--format " +
			strings.Join(report.Formats, ",") + "]",
		Args: cli.AtLeast(1), Short: "write tables, figures and significance tests of run folders and sweeps, and " +
			"one page with all of it",
	}
	c.Flags().StringVar(&out, "out", "", "folder of the report (default DIR; for several, runs/comparison)")
	c.Flags().StringVar(&o.Metric, "metric", "", "metric of the tables: "+strings.Join(metrics.Names(), ", "))
	c.Flags().StringSliceVar(&o.Rows, "rows", nil, "axes in the rows; domain, set and metric are possible too")
	c.Flags().StringSliceVar(&o.Columns, "columns", nil, "axes in the columns; other axes are averaged over")
	c.Flags().StringVar(&o.Average, "average", "", "add means: row, column or both")
	c.Flags().BoolVar(&o.Second, "second", false, "underline the second best")
	c.Flags().StringVar(&o.View, "view", "", "evaluation to report, instead of the runs' eval.view: "+
		strings.Join(record.Views(), ", "))
	c.Flags().StringSliceVar(&o.Formats, "format", report.Formats, "formats to write")
	c.Flags().BoolVar(&o.Merge, "merge", false, "show sweeps of the same axes as one, with the points of all")
	view.AddFlags(c)
	result := cli.AddJSON(c, cli.Shape{Value: cli.Report{}})
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := o.Check(); err != nil {
			return cli.Usage(err)
		}
		if out == "" && len(args) == 1 {
			out = args[0]
		} else if out == "" {
			out = cli.ComparisonFolder
		}
		r, err := write(args, out, o)
		if err != nil {
			return err
		}
		text := r.Text(view) + "report written to " + out
		if r.Page != "" {
			text += "; " + r.Page + " shows it"
		}
		return result.Print(r, text+"\n")
	}
	return c
}

// write writes a report about the runs and sweeps in dirs into the folder out.
func write(dirs []string, out string, o report.Options) (w cli.Report, err error) {
	r, err := report.New(dirs, out, o)
	if err != nil {
		return w, cli.Usage(err)
	}
	w = cli.Report{Folder: out, Content: r.Content(), Text: func(v cli.View) string {
		return r.Text(tables.View{Width: cli.Width(), All: v.All, Definitions: v.Definitions})
	}}
	if w.Files, err = r.Write(); slices.Contains(w.Files, report.Page) {
		w.Page = filepath.Join(out, report.Page)
	}
	return w, err
}
