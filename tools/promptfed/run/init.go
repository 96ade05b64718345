package run

import (
	"fmt"

	"promptfed/tools/promptfed/cli"

	"github.com/spf13/cobra"
)

func initCommand() *cobra.Command {
	var out string
	var sets []string
	var force bool
	c := &cobra.Command{Use: "init FOLDER [--out FILE] [--set key=value] [--force]", Args: cli.Exactly(1),
		Short: "write a commented configuration for a folder of images: layout detected, partition chosen"}
	c.Flags().StringVar(&out, "out", "", "file to write (default NAME.yaml)")
	c.Flags().StringArrayVar(&sets, "set", nil, "change a key that the choice depends on, as in data.layout=domains "+
		"or method=fedpha; the file has the method with its options, data.layout, data.corrupt and partition")
	c.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	c.RunE = func(_ *cobra.Command, args []string) error {
		p, err := plan(args[0], sets)
		if err != nil {
			return err
		}
		if out == "" {
			out = p.Name + ".yaml"
		}
		if err := cli.WriteNew(out, p.Text, force); err != nil {
			return err
		}
		fmt.Printf("written to %s; promptfed run %s trains\n", out, out)
		return nil
	}
	return c
}
