package inspect

import (
	"fmt"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/bundle/exported"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

// gradientsHelp is the help of --gradients.
const gradientsHelp = "write the gradient of each tower as a file, by which the tower then trains; its blocks " +
	"take no prompts"

func convertCommand() *cobra.Command {
	var o converted.Options
	var out string
	c := &cobra.Command{
		Use: "convert SRC --out BUNDLE [--vocab FILE]", Args: cli.Exactly(1),
		Short: "convert an OpenAI .pt file, a Hugging Face folder or an OpenCLIP folder to a bundle",
	}
	c.Flags().StringVar(&out, "out", "", "folder to write the bundle to")
	c.Flags().StringVar(&o.Vocab, "vocab", "", "vocabulary file, if the checkpoint has none "+
		"(bpe_simple_vocab_16e6.txt.gz)")
	c.Flags().StringVar(&o.Checkpoint.Activation, "activation", "", "quick_gelu, gelu or gelu_tanh, if the "+
		"checkpoint does not have it")
	c.Flags().IntVar(&o.Checkpoint.TextHeads, "text-heads", 0, "attention heads of the text tower, if the checkpoint "+
		"does not have it")
	c.Flags().IntVar(&o.Checkpoint.VisionHeads, "vision-heads", 0, "attention heads of the image tower, if the "+
		"checkpoint does not have it")
	c.Flags().Float64Var(&o.Checkpoint.Epsilon, "epsilon", 0, "epsilon of the layer normalisations, if the checkpoint "+
		"does not have it")
	c.Flags().BoolVar(&o.Gradients, "gradients", false, gradientsHelp)
	result := cli.AddJSON(c, cli.Shape{Value: writtenBundle{}})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return cli.Needed("convert", "--out BUNDLE")
		}
		show, end := progress.Bytes()
		o.Progress = func(done, total int64) { show("weights", done, total) }
		o.Context = cmd.Context()
		b, err := converted.Convert(args[0], out, o)
		end()
		if err != nil {
			return err
		}
		w := writtenBundle{backboneOf(b, out), b.Text.Context, b.Notes}
		text := w.text(b.Architecture)
		for _, n := range b.Notes {
			text += "note: " + n + "\n"
		}
		return result.Print(w, text)
	}
	return c
}

// writtenBundle is a bundle that was written.
type writtenBundle struct {
	backbone
	Context int      `json:"context"` // maximal number of tokens
	Notes   []string `json:"notes"`
}

func (w writtenBundle) text(name string) string {
	return fmt.Sprintf("%s: %s, text width %d, embedding dimension %d, images of %d, prompts of up to %d tokens in "+
		"all\n", w.Folder, name, w.TextWidth, w.EmbedDim, w.ImageSize, w.Context)
}

func bundleCommand() *cobra.Command {
	var out string
	var gradients bool
	c := &cobra.Command{
		Use: "bundle FOLDER --out BUNDLE", Args: cli.Exactly(1),
		Short: "write what inspect detects in exported models into a bundle.json",
		Long: "FOLDER holds models that another tool exported. image=FOLDER,text=FOLDER names a folder for each " +
			"tower;\nfolder=FOLDER,variant=fp16 selects the files of a variant.",
	}
	c.Flags().StringVar(&out, "out", "", "folder to write the bundle to")
	c.Flags().BoolVar(&gradients, "gradients", false, gradientsHelp)
	result := cli.AddJSON(c, cli.Shape{Value: writtenBundle{}})
	c.RunE = func(_ *cobra.Command, args []string) error {
		if out == "" {
			return cli.Needed("bundle", "--out BUNDLE")
		}
		b, err := bundle.Find(args[0])
		if err != nil {
			return err
		}
		if err := exported.WriteRecorded(b, out, gradients); err != nil {
			return err
		}
		if b, err = bundle.Open(out); err != nil {
			return err
		}
		w := writtenBundle{backboneOf(b, out), b.Text.Context, b.Notes}
		return result.Print(w, w.text(b.Name))
	}
	return c
}
