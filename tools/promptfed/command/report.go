package command

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/tools/lab/report"
)

func reportCommand() *cobra.Command {
	var o report.Options
	var out string
	var shown shownFlags
	c := &cobra.Command{
		Use: "report DIR... [--out DIR] [--metric NAME] [--rows AXIS,...] [--columns AXIS,...] [--format " +
			strings.Join(report.Formats, ",") + "]",
		Args: atLeast(1), Short: "write tables, figures and significance tests of run folders and sweeps, and one " +
			"page with all of it",
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
	shown.add(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := o.Check(); err != nil {
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
		shown.show(r)
		fmt.Printf("report written to %s; %s shows it\n", out, filepath.Join(out, report.Page))
		return nil
	}
	return c
}

const comparisonFolder = "runs/comparison"

// writeReports writes everything that there is to say about the runs and sweeps in some folders.
func writeReports(dirs []string, out string) (*report.Report, error) {
	return makeReport(dirs, out, report.Standard())
}

func makeReport(dirs []string, out string, o report.Options) (*report.Report, error) {
	r, err := report.Of(dirs, out, o)
	if err != nil {
		return nil, usageError{err}
	}
	return r, r.Write()
}
