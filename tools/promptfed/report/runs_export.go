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
	command := &cobra.Command{Use: "export [DIR...] --out FILE.csv|FILE.parquet",
		Short: "write every number of every round to one table, a line each, for pandas and similar tools"}
	command.Flags().StringVar(&out, "out", "", "file to write; its extension decides the format: .csv or .parquet")
	result := cli.AddJSON(command, exportedTable{})
	command.RunE = func(_ *cobra.Command, dirs []string) error {
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

	return command
}

type exportedTable struct {
	File  string   `json:"file"`
	Rows  int      `json:"rows"`
	Notes []string `json:"notes"` // what was left out
}

func runsLog() *cobra.Command {
	var to string
	command := &cobra.Command{Use: "log DIR... --to mlflow:URI", Args: cli.AtLeast(1),
		Short: "send runs to MLflow, as run --track does: those of serve, or those whose tracking server was down"}
	command.Flags().StringVar(&to, "to", "", "mlflow:FOLDER, or mlflow:http://HOST:PORT")
	result := cli.AddJSON(command, []loggedRun{})
	command.RunE = func(cmd *cobra.Command, dirs []string) error {
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
		for _, foundRun := range runs {
			release, err := runfolder.Claim(foundRun.Dir, runfolder.Use{Resume: true, Cell: true})
			if err != nil {
				return err
			}

			var rounds []record.Record
			for _, x := range foundRun.Rounds {
				rounds = append(rounds, x.Record)
			}

			n, err := trackers.SendToMLflow(cmd.Context(), uri, trackers.Run{Dir: foundRun.Dir, Name: foundRun.Name,
				Method: foundRun.Method, Seed: foundRun.Seed, Config: []byte(foundRun.Config)}, rounds,
				foundRun.State == results.Done)
			release()
			if err != nil {
				return err
			}

			result.Say("%s: %s sent", folderSeen(foundRun.Dir), experiment.CountInWords(n, "round"))
			out = append(out, loggedRun{folderSeen(foundRun.Dir), n})
		}

		return result.Print(out, "")
	}

	return command
}

type loggedRun struct {
	Folder string `json:"folder"`
	Rounds int    `json:"rounds"` // sent now
}
