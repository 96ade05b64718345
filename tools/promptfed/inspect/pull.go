package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/models/hub"
	"promptfed/runtime/oneline"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

func pullCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "pull MODEL", Args: cli.Exactly(1),
		Short: "fetch a CLIP from the Hugging Face hub, or from OpenAI, and make a bundle of it",
		Long: "MODEL is ORG/NAME or ORG/NAME@REVISION of the hub, or one of\n  " + strings.Join(hub.Names(), "\n  ") +
			".\n\nFiles go to the cache of Python's huggingface_hub, the bundle to a folder where runs find it. A\n" +
			"cut download is continued. HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN and HF_HUB_OFFLINE mean what\n" +
			"they mean for huggingface_hub.",
	}

	command.ValidArgsFunction = cobra.FixedCompletions(hub.Names(), cobra.ShellCompDirectiveNoFileComp)
	result := cli.AddJSON(command, fetched{})
	command.RunE = func(cmd *cobra.Command, args []string) error {
		model, err := hub.Parse(args[0])
		if err != nil {
			return cli.Usage(err)
		}

		h, err := hub.New()
		if err != nil {
			return cli.Usage(err)
		}

		show, end := progress.Bytes()
		backbone, local, err := h.Pull(cmd.Context(), model, show)
		end()
		if err != nil {
			return err
		}

		if local != nil {
			fmt.Fprintf(os.Stderr, "note: the files of the cache are used, because %s\n", oneline.Text(local.Error()))
		}

		f := fetched{writtenBundle{backboneOf(backbone, backbone.Dir), backbone.Text.Context, backbone.Notes},
			backbone.Origin, model.Backbone()}
		text := f.text(backbone.Architecture) + fmt.Sprintln("from", backbone.Origin)
		for _, n := range backbone.Notes {
			text += "note: " + n + "\n"
		}

		return result.Print(f, text+fmt.Sprintf("in a configuration: backbones: [%s]\n", f.Use))
	}

	return command
}

// fetched is a bundle of a fetched model.
type fetched struct {
	writtenBundle
	Origin bundle.Origin `json:"origin"`
	Use    string        `json:"use"` // its name in backbones
}

// pulled is a fetched bundle on this machine.
type pulled struct {
	Name     string `json:"name"`
	Source   string `json:"source"`
	Revision string `json:"revision"`
}

// pulledOf lists the bundles that were fetched.
func pulledOf(models string) (all []pulled) {
	for _, e := range bundle.List(models) {
		if o, ok := bundle.OriginOf(e.Dir); ok && e.Dir != "" {
			all = append(all, pulled{filepath.Base(e.Dir), o.Source, o.Revision})
		}
	}
	return all
}

func (p pulled) String() string { return fmt.Sprintf("%s (%s at %.12s)", p.Name, p.Source, p.Revision) }
