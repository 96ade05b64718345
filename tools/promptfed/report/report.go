package report

import (
	"context"
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
	var options report.Options
	var out string
	var view cli.View
	command := &cobra.Command{
		Use: "report DIR... [--out DIR] [--metric NAME] [--rows AXIS,...] [--columns AXIS,...] [--merge] [--format " +
			strings.Join(report.Formats, ",") + "]",
		Args: cli.AtLeast(1), Short: "write tables, figures and significance tests of run folders and sweeps, and " +
			"one page with all of it",
	}

	command.Flags().StringVar(&out, "out", "", "folder of the report (default DIR; for several, runs/comparison)")
	command.Flags().StringVar(&options.Metric, "metric", "", "metric of the tables: "+strings.Join(metrics.Names(),
		", "))
	command.Flags().StringSliceVar(&options.Rows, "rows", nil,
		"axes in the rows; domain, set and metric are possible too")
	command.Flags().StringSliceVar(&options.Columns, "columns", nil,
		"axes in the columns; other axes are averaged over")
	command.Flags().StringVar(&options.Average, "average", "", "add means: row, column or both")
	command.Flags().BoolVar(&options.Second, "second", false, "underline the second best")
	command.Flags().StringVar(&options.View, "view", "", "evaluation to report, instead of the runs' eval.view: "+
		strings.Join(record.Views(), ", "))
	command.Flags().StringSliceVar(&options.Formats, "format", report.Formats, "formats to write")
	command.Flags().BoolVar(&options.Merge, "merge", false,
		"show sweeps of the same axes as one, with the points of all")
	view.AddFlags(command)
	result := cli.AddJSON(command, cli.Report{})
	command.RunE = func(command *cobra.Command, args []string) error {
		if err := options.Check(); err != nil {
			return cli.Usage(err)
		}

		if out == "" && len(args) == 1 {
			out = args[0]
		} else if out == "" {
			out = cli.ComparisonFolder
		}

		r, err := write(command.Context(), args, out, options)
		if err != nil {
			return err
		}

		text := r.Text(view) + "report written to " + out
		if r.Page != "" {
			text += "; " + r.Page + " shows it"
		}

		return result.Print(r, text+"\n")
	}

	return command
}

// write writes a report about the runs and sweeps in dirs into the folder out.
func write(ctx context.Context, dirs []string, out string, o report.Options) (written cli.Report, err error) {
	r, err := report.New(ctx, dirs, out, o)
	if err != nil {
		return written, cli.Usage(err)
	}

	written = cli.Report{Folder: out, Content: r.Content(), Text: func(v cli.View) string {
		return r.Text(tables.View{Width: cli.Width(), All: v.All, Definitions: v.Definitions})
	}}
	if written.Files, err = r.Write(ctx); slices.Contains(written.Files, report.Page) {
		written.Page = filepath.Join(out, report.Page)
	}

	return written, err
}
