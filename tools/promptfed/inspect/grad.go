package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/tools/promptfed/cli"
)

func gradCommand() *cobra.Command {
	var outputs, wrt []string
	var out string
	command := &cobra.Command{
		Use: "grad IN.onnx --of OUTPUT[,OUTPUT] --wrt INPUT[,INPUT] --out OUT.onnx", Args: cli.Exactly(1),
		Short: "write the gradient graph of any supported ONNX file",
		Long: "Writes the vector-Jacobian product of an ONNX file. Its inputs are those of the original and " +
			grad.Cotangent + "OUTPUT for each chosen output; its outputs are " + grad.Gradient + "INPUT for each " +
			"chosen input.",
	}

	flagSet := command.Flags()
	flagSet.StringSliceVar(&outputs, "of", nil, ofHelp)
	flagSet.StringSliceVar(&wrt, "wrt", nil, wrtHelp)
	flagSet.StringVar(&out, "out", "", "file to write")
	result := cli.AddJSON(command, gradFile{})
	command.RunE = func(_ *cobra.Command, args []string) error {
		if out == "" || len(outputs) == 0 || len(wrt) == 0 {
			return cli.Needed("grad", "--of, --wrt and --out")
		}

		f, err := graph.ReadFile(args[0])
		if err != nil {
			return err
		}

		if onnx.HasExternal(f.Proto) && !sameFolder(args[0], out) {
			return cli.Usagef("%s has weights in separate files; --out must be in the same folder, %s",
				args[0], filepath.Dir(args[0]))
		}

		if overwrites(out, args[0], f.Proto) {
			return cli.Usagef("--out %s would overwrite %s or its weights: give the name of another file", out, args[0])
		}

		m, err := grad.VJPModel(f, outputs, wrt)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}

		b, err := onnx.Marshal(m)
		if err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}

		if err = atomicfile.Write(out, atomicfile.Bytes(b)); err == nil {
			err = result.Print(gradFile{out, outputs, wrt}, fmt.Sprintf("%s: gradients of %s with respect to %s\n", out,
				strings.Join(outputs, ", "), strings.Join(wrt, ", ")))
		}

		return err
	}

	return command
}

// gradFile is a written gradient graph.
type gradFile struct {
	File string   `json:"file"`
	Of   []string `json:"of"`
	WRT  []string `json:"wrt"`
}

// overwrites reports whether out is the file of a model, or one of those with its weights.
func overwrites(out, model string, proto *onnx.ModelProto) bool {
	there, err := os.Stat(out)
	if err != nil {
		return false
	}

	files, err := onnx.ExternalFiles(proto)
	return err != nil || slices.ContainsFunc(append(files, filepath.Base(model)), func(name string) bool {
		info, err := os.Stat(filepath.Join(filepath.Dir(model), name))
		return err == nil && os.SameFile(there, info)
	})
}

func sameFolder(a, b string) bool {
	x, err1 := filepath.Abs(filepath.Dir(a))
	y, err2 := filepath.Abs(filepath.Dir(b))
	return err1 == nil && err2 == nil && x == y
}
