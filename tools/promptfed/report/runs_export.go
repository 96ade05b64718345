package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/trackers"
	"promptfed/tools/lab/trackers/numbers"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/runfolder"
)

func runsExport() *cobra.Command {
	var out string
	c := &cobra.Command{Use: "export [DIR...] --out FILE.csv|FILE.parquet",
		Short: "write every number of every round to one table, a line each, for pandas and similar tools"}
	c.Flags().StringVar(&out, "out", "", "file to write; its extension decides the format: .csv or .parquet")
	result := cli.AddJSON(c, cli.Shape{Value: exportedTable{}})
	c.RunE = func(_ *cobra.Command, dirs []string) error {
		form := strings.TrimPrefix(filepath.Ext(out), ".")
		if !slices.Contains(numbers.Formats, form) {
			return cli.Usagef("runs export needs --out FILE.csv or --out FILE.parquet, not %q", out)
		}
		all, err := loadRuns(dirs)
		if err != nil {
			return err
		}
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		rows := 0
		write := func(w io.Writer) (err error) {
			rows, err = numbers.Write(w, form, all, here)
			return err
		}
		if err := atomicfile.Write(out, write); err != nil {
			return err
		}
		for _, n := range all.Notes {
			fmt.Fprintln(os.Stderr, "promptfed: note:", n)
		}
		return result.Print(exportedTable{out, rows, all.Notes}, "written to "+out+"\n")
	}
	return c
}

type exportedTable struct {
	File  string   `json:"file"`
	Rows  int      `json:"rows"`
	Notes []string `json:"notes"` // what was left out
}

func runsLog() *cobra.Command {
	var to string
	c := &cobra.Command{Use: "log DIR... --to mlflow:URI", Args: cli.AtLeast(1),
		Short: "send runs to MLflow, as run --track does: those of serve, or those whose tracking server was down"}
	c.Flags().StringVar(&to, "to", "", "mlflow:FOLDER, or mlflow:http://HOST:PORT")
	result := cli.AddJSON(c, cli.Shape{Value: []loggedRun{}})
	c.RunE = func(cmd *cobra.Command, dirs []string) error {
		uri, ok := strings.CutPrefix(to, trackers.MLflow)
		if !ok {
			return cli.Usagef("runs log needs --to mlflow:FOLDER or --to mlflow:http://HOST:PORT, not %q", to)
		}
		if err := trackers.Check([]string{to}); err != nil {
			return cli.Usage(err)
		}
		runs, err := findRuns(dirs)
		if err != nil {
			return err
		}
		var out []loggedRun
		for _, r := range runs {
			release, err := runfolder.Claim(r.Dir, runfolder.Use{Resume: true, Cell: true})
			if err != nil {
				return err
			}
			var rounds []record.Record
			for _, x := range r.Rounds {
				rounds = append(rounds, x.Record)
			}
			n, err := trackers.SendToMLflow(cmd.Context(), uri, trackers.Run{Dir: r.Dir, Name: r.Name, Method: r.Method,
				Seed: r.Seed, Config: []byte(r.Config)}, rounds, r.State == results.Done)
			release()
			if err != nil {
				return err
			}
			result.Say("%s: %s sent", folderSeen(r.Dir), experiment.CountInWords(n, "round"))
			out = append(out, loggedRun{folderSeen(r.Dir), n})
		}
		return result.Print(out, "")
	}
	return c
}

type loggedRun struct {
	Folder string `json:"folder"`
	Rounds int    `json:"rounds"` // sent now
}
