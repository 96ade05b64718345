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
	command := cli.Configured("programs", "run two rounds and write the graphs that a run computes with, as ONNX files",
		func(cmd *cobra.Command, conf experiment.Config, display *progress.Display, result *cli.Printer) error {
			if out == "" {
				return cli.Needed("programs", "--out DIR")
			}

			conf.Train.Rounds, conf.Runtime.BatchClients, conf.Runtime.Programs = 2, 1, ""
			conf.SecureAggregation = experiment.Defaults().SecureAggregation
			federation, err := cli.Prepare(cmd.Context(), conf, display)
			if err != nil {
				return err
			}
			defer federation.Close()

			writer, err := programs.Create(out, federation.Experiment.Digests)
			if err != nil {
				return cli.Usage(err)
			}

			for _, b := range federation.Task.Backbones.Distinct {
				if err := federation.Task.WriteEncoder(writer, b); err != nil {
					return err
				}
			}

			federation.Experiment.Plan.Participation = 1 // each backbone trains
			set := federation.Settings()
			set.Workers, set.Client.Programs = 1, writer
			set.OnTurn, set.OnRound, set.OnWarning = display.Turn, display.Round, display.Warn
			display.Start(conf.Train.Rounds, len(federation.Experiment.Clients))
			if _, err := engine.Run(cmd.Context(), federation.Experiment, set); err != nil {
				return err
			}

			index, err := writer.Close()
			if err != nil {
				return err
			}

			return result.Print(written{out, index}, index.Text()+fmt.Sprintf("%d graphs in %s; %s describes them\n",
				len(index.Programs), out, programs.File))
		}, written{})
	command.Flags().StringVar(&out, "out", "", "folder to write the graphs and "+programs.File+" to")
	return command
}
