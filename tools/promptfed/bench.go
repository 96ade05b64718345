package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"promptfed/federation/experiment"
	"promptfed/models/bundle"
	"promptfed/runtime/ort"
	"promptfed/tools/bench"
)

func benchCommand() *cobra.Command {
	var o bench.Options
	var backbone, file string
	c := &cobra.Command{Use: "bench", Args: exactly(0),
		Short: "measure the training step against its plain form and against this machine's matrix products"}
	c.Flags().BoolVar(&o.Quick, "quick", false, "fewer repetitions")
	c.Flags().StringSliceVar(&o.Classes, "classes", nil, "class lists: cifar10, cifar100 (default both)")
	c.Flags().IntSliceVar(&o.Threads, "threads", nil, "thread counts (default 1 and one per core)")
	c.Flags().StringVar(&backbone, "backbone", "", "a bundle, instead of ViT-B/16's text tower with random weights")
	c.Flags().StringVar(&file, "json", "", "write the figures to a file")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if backbone != "" {
			b, err := bundle.Find(backbone)
			if err != nil {
				return err
			}
			o.Backbone = b
		}
		d := newDisplay(experiment.Config{Name: "bench"})
		defer d.close()
		o.Progress = d.steps
		o.Session = ort.Options{Prepack: experiment.Defaults().Runtime.Prepack}
		r, err := bench.Run(cmd.Context(), o)
		d.close()
		if err != nil {
			return err
		}
		fmt.Print(r.Table())
		for _, t := range r.Missed() {
			fmt.Printf("missed: %s is %.3g, want %.3g\n", t.What, t.Got, t.Want)
		}
		if file == "" {
			return nil
		}
		text, err := r.JSON()
		if err != nil {
			return err
		}
		return writeFile(file, text)
	}
	return c
}
