package run

import (
	"fmt"

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
	var result *cli.Printer
	c := cli.Configured("trace", "run a few rounds and write every number that another program needs to recompute them",
		func(cmd *cobra.Command, conf experiment.Config, d *progress.Display) error {
			if out == "" || rounds < 1 {
				return cli.Needed("trace", "--out DIR and --rounds of 1 or more")
			}
			conf.Train.Rounds = rounds
			f, err := cli.Prepare(cmd.Context(), conf, d)
			if err != nil {
				return err
			}
			defer f.Close()
			resolved, err := configs.ToMap(f.Task.Protocol.Config)
			if err != nil {
				return err
			}
			about, err := f.Trace(resolved)
			if err != nil {
				return err
			}
			rec := trace.NewRecorder()
			set := f.Settings()
			set.Client.Tracer, set.OnTurn, set.OnRound, set.OnWarning = rec, d.Turn, d.Round, d.Warn
			d.Start(rounds, len(f.Experiment.Clients))
			if _, err := engine.Run(cmd.Context(), f.Experiment, set); err != nil {
				return err
			}
			if err := rec.Write(out, about); err != nil {
				return err
			}
			return result.Print(traced{out, len(rec.Tensors), rounds}, fmt.Sprintf("%d tensors of %d rounds in %s\n",
				len(rec.Tensors), rounds, out))
		})
	result = cli.AddJSON(c, cli.Shape{Value: traced{}})
	c.Flags().IntVar(&rounds, "rounds", rounds, "number of rounds")
	c.Flags().StringVar(&out, "out", "", "folder to write trace.json and trace.safetensors to")
	return c
}
