package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
)

// configured makes a command whose one argument is a configuration, with --set; do gets the configuration and a display
// that is closed afterwards.
func configured(use, short string, do func(cmd *cobra.Command, conf experiment.Config, d *display) error) *cobra.Command {
	var sets []string
	c := &cobra.Command{Use: use + " CONFIG [--set key=value]", Args: exactly(1), Short: short}
	c.Flags().StringArrayVar(&sets, "set", nil, "change a key of the configuration, as in train.lr=0.01")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		conf, err := load(args[0], sets)
		if err != nil {
			return err
		}
		d := newDisplay(conf)
		defer d.close()
		return do(cmd, conf, d)
	}
	return c
}

// prepare opens an experiment and computes its features.
func prepare(cmd *cobra.Command, conf experiment.Config, d *display) (*experiment.Built, error) {
	b, err := experiment.Open(cmd.Context(), conf, d.work)
	if err != nil {
		return nil, asUsage(err)
	}
	d.skipped(b.Set.Skipped)
	return b, b.Features(cmd.Context(), d.work)
}

// writeFile replaces a file by some bytes.
func writeFile(path string, b []byte) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// needed is the error of a flag that must be given.
func needed(command, flags string) error {
	return usageError{fmt.Errorf("%s needs %s", command, flags)}
}
