package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/models/bundle/exported"
)

func bundleCommand() *cobra.Command {
	var out, name string
	c := &cobra.Command{
		Use: "bundle FOLDER --out BUNDLE", Args: exactly(1),
		Short: "freeze what inspect finds out of exported models into a bundle.json of their own",
		Long: "FOLDER holds models that another tool exported; image=FOLDER,text=FOLDER names one for each tower, " +
			"and\n" +
			"folder=FOLDER,variant=fp16 files of a variant.",
	}
	c.Flags().StringVar(&out, "out", "", "folder of the bundle")
	c.Flags().StringVar(&name, "name", "", "name of the bundle (default: that of the exported folder)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if out == "" {
			return needed("bundle", "--out BUNDLE")
		}
		b, err := bundle.Find(args[0])
		if err != nil {
			return err
		}
		if name != "" {
			b.Name = name
		}
		if err := exported.Freeze(b, out); err != nil {
			return err
		}
		if b, err = bundle.Open(out); err != nil {
			return err
		}
		fmt.Printf("%s: %s, text width %d, embedding dimension %d, images of %d, prompts of up to %d tokens in "+
			"all\n", out,
			b.Name, b.Text.Width, b.Text.EmbedDim, b.Vision.Image, b.Text.Context)
		return nil
	}
	return c
}
