package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/tools/bench"
)

func benchCommand() *cobra.Command {
	var o bench.Options
	var backbone, file string
	var sets []string
	c := &cobra.Command{Use: "bench", Args: exactly(0),
		Short: "measure the training step against its plain form and against this machine's matrix products"}
	c.Flags().BoolVar(&o.Quick, "quick", false, "fewer repetitions")
	c.Flags().StringSliceVar(&o.Classes, "classes", nil, "class lists: cifar10, cifar100 (default both)")
	c.Flags().IntSliceVar(&o.Threads, "threads", nil, "thread counts (default 1 and one per core)")
	c.Flags().StringVar(&backbone, "backbone", "", "a bundle, instead of ViT-B/16's text tower with random weights")
	c.Flags().StringArrayVar(&sets, "set", nil, "change a runtime key, as in runtime.prepack=false; threads are "+
		"--threads")
	c.Flags().StringVar(&file, "json", "", "write the figures to a file")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		conf, err := bare(sets)
		if err != nil {
			return err
		}
		if backbone != "" {
			b, err := bundle.Find(backbone)
			if err != nil {
				return err
			}
			o.Backbone = b
		}
		conf.Name = "bench"
		d := newDisplay(conf)
		defer d.close()
		if err := chooseProvider(&conf, d); err != nil {
			return err
		}
		o.Progress = d.steps
		o.Session = conf.Runtime.Session(0)
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
