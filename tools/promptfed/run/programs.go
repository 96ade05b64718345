package run

import (
	"fmt"

	"github.com/spf13/cobra"

	"promptfed/federation/engine"
	"promptfed/federation/engine/programs"
	"promptfed/federation/experiment"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

// written is a written folder of programs.
type written struct {
	Folder string `json:"folder"`
	programs.Index
}

func programsCommand() *cobra.Command {
	var out string
	var result *cli.Printer
	c := cli.Configured("programs", "run two rounds and write the graphs that a run computes with, as ONNX files",
		func(cmd *cobra.Command, conf experiment.Config, d *progress.Display) error {
			if out == "" {
				return cli.Needed("programs", "--out DIR")
			}
			conf.Train.Rounds, conf.Runtime.BatchClients, conf.Runtime.Programs = 2, 1, ""
			conf.SecureAggregation = experiment.Defaults().SecureAggregation
			f, err := cli.Prepare(cmd.Context(), conf, d)
			if err != nil {
				return err
			}
			defer f.Close()
			w, err := programs.Create(out, f.Experiment.Digests)
			if err != nil {
				return cli.Usage(err)
			}
			for _, b := range f.Task.Backbones.Distinct {
				if err := f.Task.WriteEncoder(w, b); err != nil {
					return err
				}
			}
			f.Experiment.Plan.Participation = 1 // each backbone trains
			set := f.Settings()
			set.Workers, set.Client.Programs = 1, w
			set.OnTurn, set.OnRound, set.OnWarning = d.Turn, d.Round, d.Warn
			d.Start(conf.Train.Rounds, len(f.Experiment.Clients))
			if _, err := engine.Run(cmd.Context(), f.Experiment, set); err != nil {
				return err
			}
			index, err := w.Close()
			if err != nil {
				return err
			}
			return result.Print(written{out, index}, index.Text()+fmt.Sprintf("%d graphs in %s; %s describes them\n",
				len(index.Programs), out, programs.File))
		})
	result = cli.AddJSON(c, cli.Shape{Value: written{}})
	c.Flags().StringVar(&out, "out", "", "folder to write the graphs and "+programs.File+" to")
	return c
}
