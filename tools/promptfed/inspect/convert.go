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
	var options converted.Options
	var out string
	command := &cobra.Command{
		Use: "convert SRC --out BUNDLE [--vocab FILE]", Args: cli.Exactly(1),
		Short: "convert an OpenAI .pt file, a Hugging Face folder or an OpenCLIP folder to a bundle",
	}

	flagSet := command.Flags()
	flagSet.StringVar(&out, "out", "", "folder to write the bundle to")
	flagSet.StringVar(&options.Vocab, "vocab", "", "vocabulary file, if the checkpoint has none "+
		"(bpe_simple_vocab_16e6.txt.gz)")
	flagSet.StringVar(&options.Checkpoint.Activation, "activation", "",
		"quick_gelu, gelu or gelu_tanh, if the checkpoint does not have it")
	flagSet.IntVar(&options.Checkpoint.TextHeads, "text-heads", 0,
		"attention heads of the text tower, if the checkpoint does not have it")

	flagSet.IntVar(&options.Checkpoint.VisionHeads, "vision-heads", 0,
		"attention heads of the image tower, if the checkpoint does not have it")
	flagSet.Float64Var(&options.Checkpoint.Epsilon, "epsilon", 0,
		"epsilon of the layer normalisations, if the checkpoint does not have it")
	flagSet.BoolVar(&options.Gradients, "gradients", false, gradientsHelp)
	result := cli.AddJSON(command, writtenBundle{})
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return cli.Needed("convert", "--out BUNDLE")
		}

		show, end := progress.Bytes()
		options.Progress = func(done, total int64) { show("weights", done, total) }
		options.Context = cmd.Context()
		b, err := converted.Convert(args[0], out, options)
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

	return command
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
	command := &cobra.Command{
		Use: "bundle FOLDER --out BUNDLE", Args: cli.Exactly(1),
		Short: "write what inspect detects in exported models into a bundle.json",
		Long: "FOLDER holds models that another tool exported. image=FOLDER,text=FOLDER names a folder for each " +
			"tower;\nfolder=FOLDER,variant=fp16 selects the files of a variant.",
	}

	command.Flags().StringVar(&out, "out", "", "folder to write the bundle to")
	command.Flags().BoolVar(&gradients, "gradients", false, gradientsHelp)
	result := cli.AddJSON(command, writtenBundle{})
	command.RunE = func(_ *cobra.Command, args []string) error {
		if out == "" {
			return cli.Needed("bundle", "--out BUNDLE")
		}

		model, err := bundle.Find(args[0])
		if err != nil {
			return err
		}

		if err := exported.WriteRecorded(model, out, gradients); err != nil {
			return err
		}

		if model, err = bundle.Open(out); err != nil {
			return err
		}

		w := writtenBundle{backboneOf(model, out), model.Text.Context, model.Notes}
		return result.Print(w, w.text(model.Name))
	}

	return command
}
