package command

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"promptfed/federation/experiment/trained"
)

func exportCommand() *cobra.Command {
	client := 0
	var out, models string
	var sets []string
	pixels := trained.PixelsUint8
	c := &cobra.Command{Use: "export RUN --client K --out FILE.onnx", Args: exactly(1),
		Short: "write what a client learned as one ONNX file: pixels in, class probabilities out"}
	c.Flags().IntVar(&client, "client", 0, clientHelp)
	c.Flags().StringVar(&out, "out", "", "the file to write")
	c.Flags().StringVar(&pixels, "pixels", pixels, "what the file takes: uint8 [B,H,W,3], or float, [B,3,H,W] in [0,1]")
	c.Flags().StringVar(&models, "models", "", "folder with bundles by name")
	c.Flags().StringArrayVar(&sets, "set", nil, "change a runtime key of the run, as in runtime.provider=cpu")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if out == "" {
			return needed("export", "--out FILE.onnx")
		}
		if forms := []string{trained.PixelsUint8, trained.PixelsFloat}; !slices.Contains(forms, pixels) {
			return usageError{fmt.Errorf("--pixels %q: take one of %v", pixels, forms)}
		}
		conf, err := openRun(args[0], models, sets)
		if err == nil {
			err = clientNamed(cmd)
		}
		if err != nil {
			return err
		}
		size, err := trained.Export(cmd.Context(), conf, args[0], client, pixels, out)
		if err != nil {
			return err
		}
		fmt.Printf("%s: classifier of client %d, %.1f MB, %s pixels of any size in, class probabilities out\n", out,
			client, float64(size)/1e6, pixels)
		return nil
	}
	return c
}
