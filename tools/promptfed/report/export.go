package report

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/experiment/inference"
	"promptfed/tools/promptfed/cli"
)

func exportCommand() *cobra.Command {
	var from chosen
	all, out, pixels := false, "", inference.PixelsUint8
	command := &cobra.Command{Use: "export RUN --client K|--global|--all --out FILE.onnx|FOLDER", Args: cli.Exactly(1),
		Short: "write the classifier of a client, or the global one, as one ONNX file: pixels in, class " +
			"probabilities out"}
	from.flags(command)
	command.Flags().BoolVar(&all, "all", false, "write every client's classifier and the global one, each to a file "+
		"in a new folder")
	command.Flags().StringVar(&out, "out", "", "file to write; with --all, the folder")
	command.Flags().StringVar(&pixels, "pixels", pixels,
		"input of the file: uint8 [B,H,W,3], or float [B,3,H,W] in [0,1]")
	result := cli.AddJSON(command, exported{})
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return cli.Needed("export", "--out FILE.onnx, or with --all --out FOLDER")
		}

		if forms := []string{inference.PixelsUint8, inference.PixelsFloat}; !slices.Contains(forms, pixels) {
			return cli.Usagef("--pixels %q: use one of %s", pixels, strings.Join(forms, ", "))
		}

		var done exported
		write := func(f *inference.Classifier, path string) error {
			size, err := f.Export(cmd.Context(), pixels, path)
			if err == nil {
				result.Say("%s: %s, %.1f MB, %s pixels of any size in, class probabilities out", path, f.Choice,
					float64(size)/1e6, pixels)
				done.Files = append(done.Files, exportedFile{path, f.Choice.String(), size, pixels})
			}
			return err
		}

		if all {
			if cmd.Flags().Changed("client") || from.global {
				return cli.Usagef("--all writes every classifier: leave out --client and --global")
			}
			leftOut, err := exportAll(&from, args[0], out, write)
			for _, why := range leftOut {
				result.Say("left out: %v", why)
				done.LeftOut = append(done.LeftOut, why.Error())
			}
			if err != nil {
				return err
			}
			return result.Print(done, "")
		}

		f, err := from.openRun(cmd, args[0])
		if err != nil {
			return err
		}
		defer f.Close()

		if err := write(f, out); err != nil {
			return err
		}

		return result.Print(done, "")
	}

	return command
}

// exported lists written classifiers, and why a run has no others.
type exported struct {
	Files   []exportedFile `json:"files"`
	LeftOut []string       `json:"left_out"`
}

type exportedFile struct {
	File       string `json:"file"`
	Classifier string `json:"classifier"` // in words
	Bytes      int64  `json:"bytes"`
	Pixels     string `json:"pixels"`
}

// exportAll writes every classifier of a run into a folder. The folder must be new or empty, so that it holds no files
// of another run.
func exportAll(from *chosen, dir, out string, write func(f *inference.Classifier, path string) error) ([]error, error) {
	conf, err := openRun(dir, from.sets)
	if err != nil {
		return nil, err
	}

	if list, _ := os.ReadDir(out); len(list) > 0 {
		return nil, cli.Usagef("--out %s already holds files; give a new folder", out)
	}

	set, err := dataOf(dir)
	if err != nil {
		return nil, err
	}

	return inference.All(conf, dir, func(f *inference.Classifier) error {
		f.Data = set
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		return write(f, filepath.Join(out, f.FileName()))
	})
}
