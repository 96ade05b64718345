package inspect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/data/partition"
	"promptfed/federation/experiment"
	"promptfed/models/bundle"
	"promptfed/runtime/convert"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

func partitionCommand() *cobra.Command {
	const short = "show which client gets which examples, or compare the data with the sizes of data sets that a " +
		"paper prints"
	command := cli.Configured("partition", short, func(cmd *cobra.Command, conf experiment.Config,
		d *progress.Display, result *cli.Printer) error {
		x, err := experiment.OpenData(cmd.Context(), conf, d.Work)
		if err != nil {
			return cli.AsUsage(err)
		}
		d.OpenedData(x)
		return result.Print(partition.FileOf(x.Set, x.Parts), partition.Table(x.Set, x.Parts))
	}, partition.File{}, cli.Shape{When: "a table of sizes", Value: comparedCounts{}})
	show := command.RunE
	command.RunE = func(cmd *cobra.Command, args []string) error {
		counts, err := configs.HasSection(args[0], "counts")
		if err != nil {
			return cli.Usage(err)
		}
		if !counts {
			return show(cmd, args)
		}
		sets, err := cmd.Flags().GetStringArray("set")
		if err != nil {
			return err
		}
		return compareCounts(args[0], sets, cli.PrinterOf(cmd))
	}

	return command
}

// cached is what the feature cache holds of an experiment.
type cached struct {
	Images    int      `json:"images"`
	Backbones []string `json:"backbones"`
}

func featuresCommand() *cobra.Command {
	const short = "compute the image features of an experiment into the feature cache"
	return cli.Configured("features", short, func(cmd *cobra.Command, conf experiment.Config,
		d *progress.Display, result *cli.Printer) error {
		federation, err := cli.Prepare(cmd.Context(), conf, d)
		if err != nil {
			return err
		}
		defer federation.Close()

		names := convert.Slice(federation.Task.Backbones.Distinct, func(b *bundle.Bundle) string { return b.Name })
		n := 0
		for _, s := range federation.Task.Data.Set.Splits() {
			n += len(*s.Examples)
		}

		return result.Print(cached{n, names}, fmt.Sprintf("features of %d images by %s are in the cache\n", n,
			strings.Join(names, ", ")))
	}, cached{})
}
