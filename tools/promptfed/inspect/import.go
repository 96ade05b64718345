package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"promptfed/federation/experiment"
	"promptfed/tools/lab/dasslimport"
	"promptfed/tools/promptfed/cli"
)

// imported is a written configuration, with the settings that have no exact equivalent. File is empty if nothing was
// written.
type imported struct {
	File    string                    `json:"file"`
	Differs []dasslimport.Unconverted `json:"differs"`
}

func importCommand() *cobra.Command {
	var out string
	var sets []string
	var strict, force bool
	command := &cobra.Command{Use: "import FILE... [--out FILE] [--set key=value] [--strict] [--force]",
		Args:  cli.AtLeast(1),
		Short: "make a configuration from settings of CoOp, FedPHA and related code: yacs files and a launch script"}
	flagSet := command.Flags()
	flagSet.StringVar(&out, "out", "imported.yaml", "file to write")
	flagSet.StringArrayVar(&sets, "set", nil, "set a key that the files leave open, as in train.optimizer_state=shared")
	flagSet.BoolVar(&strict, "strict", false, "write nothing if a setting has no exact equivalent")
	flagSet.BoolVar(&force, "force", false, "overwrite an existing file")
	result := cli.AddJSON(command, imported{})
	command.RunE = func(_ *cobra.Command, args []string) error {
		var files []dasslimport.File
		for _, name := range args {
			text, err := os.ReadFile(name)
			if err != nil {
				return cli.Usage(err)
			}
			files = append(files, dasslimport.File{Name: name, Text: text})
		}

		for _, f := range files {
			for _, name := range dasslimport.Named(f) {
				if found, ok := namedFile(f.Name, name, files); ok {
					files = append(files, found)
				}
			}
		}

		got, err := dasslimport.Import(files, sets)
		if err != nil {
			return cli.Usage(err)
		}

		for _, l := range got.Unconverted {
			result.Say("differs: %s", l)
		}

		if strict && len(got.Unconverted) > 0 {
			if err := result.Print(imported{Differs: got.Unconverted}, ""); err != nil {
				return err
			}
			return fmt.Errorf("%s without an exact equivalent, nothing was written; decide with --set, or leave out "+
				"--strict", experiment.CountInWords(len(got.Unconverted), "setting"))
		}

		if err := cli.WriteNew(out, got.Text, force); err != nil {
			return err
		}

		return result.Print(imported{out, got.Unconverted}, fmt.Sprintf("written to %s; promptfed partition %s shows "+
			"its partition, promptfed run %s trains\n", out, out, out))
	}

	return command
}

// namedFile reads a file that a script names, from the folder of the script or one above it, unless a file of this name
// is given.
func namedFile(script, name string, given []dasslimport.File) (file dasslimport.File, ok bool) {
	base := filepath.Base(name)
	if slices.ContainsFunc(given, func(g dasslimport.File) bool { return filepath.Base(g.Name) == base }) {
		return file, false
	}

	dir, err := filepath.Abs(filepath.Dir(script))
	for err == nil {
		path := filepath.Join(dir, name)
		if filepath.IsAbs(name) {
			path = name
		}
		if text, err := os.ReadFile(path); err == nil {
			return dasslimport.File{Name: name, Text: text}, true
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}

	return file, false
}
