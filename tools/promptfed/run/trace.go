package run

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/engine/trace"
	"promptfed/federation/experiment"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

// traced is a written trace.
type traced struct {
	Folder  string `json:"folder"`
	Tensors int    `json:"tensors"`
	Rounds  int    `json:"rounds"`
}

func traceCommand() *cobra.Command {
	var out string
	rounds := 2
	command := cli.Configured("trace",
		"run a few rounds and write every number that another program needs to recompute them",
		func(cmd *cobra.Command, conf experiment.Config, display *progress.Display, result *cli.Printer) error {
			if out == "" || rounds < 1 {
				return cli.Needed("trace", "--out DIR and --rounds of 1 or more")
			}

			conf.Train.Rounds = rounds
			federation, err := cli.Prepare(cmd.Context(), conf, display)
			if err != nil {
				return err
			}
			defer federation.Close()

			resolved, err := configs.ToMap(federation.Task.Protocol.Config)
			if err != nil {
				return err
			}

			about, err := federation.Trace(resolved)
			if err == nil {
				err = os.MkdirAll(out, 0o755) // before the rounds
			}

			if err != nil {
				return err
			}

			rec := trace.NewRecorder()
			set := federation.Settings()
			set.Client.Tracer, set.OnTurn, set.OnRound, set.OnWarning = rec, display.Turn, display.Round, display.Warn
			display.Start(rounds, len(federation.Experiment.Clients))
			if _, err := engine.Run(cmd.Context(), federation.Experiment, set); err != nil {
				return err
			}

			if err := rec.Write(out, about); err != nil {
				return err
			}

			return result.Print(traced{out, len(rec.Tensors), rounds}, fmt.Sprintf("%d tensors of %d rounds in %s\n",
				len(rec.Tensors), rounds, out))
		}, traced{})
	command.Flags().IntVar(&rounds, "rounds", rounds, "number of rounds")
	command.Flags().StringVar(&out, "out", "", "folder to write trace.json and trace.safetensors to")
	return command
}
