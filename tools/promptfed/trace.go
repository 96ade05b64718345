package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/experiment"
)

func traceCommand() *cobra.Command {
	var sets []string
	var out string
	rounds := 2
	c := &cobra.Command{
		Use: "trace CONFIG --rounds R --out DIR", Args: exactly(1),
		Short: "run some rounds and write every number that an outside program needs to recompute them",
	}
	c.Flags().StringArrayVar(&sets, "set", nil, "change a key of the configuration")
	c.Flags().IntVar(&rounds, "rounds", rounds, "rounds to run")
	c.Flags().StringVar(&out, "out", "", "folder for trace.json and trace.safetensors")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" || rounds < 1 {
			return usageError{fmt.Errorf("trace needs --out DIR and --rounds of 1 or more")}
		}
		conf, err := load(args[0], append(sets, fmt.Sprintf("train.rounds=%d", rounds)))
		if err != nil {
			return err
		}
		d := newDisplay(conf)
		defer d.close()
		b, err := experiment.Open(cmd.Context(), conf, d.work)
		if err != nil {
			return asUsage(err)
		}
		if err := b.Features(cmd.Context(), d.work); err != nil {
			return err
		}
		resolved, err := configs.Map(b.Config)
		if err != nil {
			return err
		}
		about, err := b.Trace(resolved)
		if err != nil {
			return err
		}
		rec := engine.NewRecorder()
		set := b.Settings()
		set.Tracer, set.OnTurn, set.OnRound = rec, d.turn, d.round
		d.start(rounds, len(b.Parts))
		if _, err := engine.Run(cmd.Context(), b.Engine, set); err != nil {
			return err
		}
		if err := rec.WriteTrace(out, about); err != nil {
			return err
		}
		fmt.Printf("%d tensors of %d rounds in %s\n", len(rec.Tensors), rounds, out)
		return nil
	}
	return c
}
