package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"promptfed/runtime/atomicfile"
	"promptfed/tools/moving"
)

func importCommand() *cobra.Command {
	var out string
	var sets []string
	var strict, force bool
	c := &cobra.Command{Use: "import FILE... [--out FILE] [--set key=value] [--strict] [--force]", Args: atLeast(1),
		Short: "make a configuration of settings of CoOp or FedPHA code and the like: yacs files, a script"}
	c.Flags().StringVar(&out, "out", "imported.yaml", "the file to write")
	c.Flags().StringArrayVar(&sets, "set", nil, "what the files leave open, as in train.optimizer_state=shared")
	c.Flags().BoolVar(&strict, "strict", false, "write nothing where a setting has no exact equal")
	c.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if _, err := os.Stat(out); err == nil && !force {
			return usageError{fmt.Errorf("%s is there already; use --force to replace it, or another --out", out)}
		}
		var files []moving.File
		for _, name := range args {
			text, err := os.ReadFile(name)
			if err != nil {
				return usageError{err}
			}
			files = append(files, moving.File{Name: name, Text: text})
		}
		got, err := moving.Import(files, sets)
		if err != nil {
			return usageError{err}
		}
		for _, l := range got.Left {
			fmt.Println("not the same:", l)
		}
		if strict && len(got.Left) > 0 {
			return fmt.Errorf("%d settings have no exact equal and nothing was written; decide them with --set, or "+
				"leave out --strict", len(got.Left))
		}
		if err := atomicfile.Write(out, atomicfile.Bytes(got.Text)); err != nil {
			return err
		}
		fmt.Printf("written to %s; promptfed check %s looks at it, promptfed run %s trains\n", out, out, out)
		return nil
	}
	return c
}
