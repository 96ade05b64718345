package inspect

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/data/partition"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

func partitionCommand() *cobra.Command {
	var file string
	const short = "show which client gets which examples, or compare the data with the sizes of data sets that a " +
		"paper prints"
	c := cli.Configured("partition", short, func(cmd *cobra.Command, conf experiment.Config,
		d *progress.Display) error {
		b, err := experiment.OpenData(cmd.Context(), conf, d.Work)
		if err != nil {
			return cli.AsUsage(err)
		}
		d.Opened(b)
		fmt.Print(partition.Table(b.Set, b.Parts))
		if file == "" {
			return nil
		}
		var text bytes.Buffer
		if err := partition.WriteJSON(&text, b.Set, b.Parts); err != nil {
			return err
		}
		return atomicfile.Write(file, atomicfile.Bytes(text.Bytes()))
	})
	c.Flags().StringVar(&file, "json", "", "also write the partition to a JSON file")
	show := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		counts, err := configs.HasSection(args[0], "counts")
		if err != nil {
			return cli.Usage(err)
		}
		if !counts {
			return show(cmd, args)
		}
		if file != "" {
			return cli.Usagef("--json: %s compares sizes of data sets (counts) and has no partition to write", args[0])
		}
		sets, err := cmd.Flags().GetStringArray("set")
		if err != nil {
			return err
		}
		return compareCounts(args[0], sets)
	}
	return c
}

func featuresCommand() *cobra.Command {
	const short = "compute the image features of an experiment into the feature cache"
	return cli.Configured("features", short, func(cmd *cobra.Command, conf experiment.Config,
		d *progress.Display) error {
		b, err := cli.Prepare(cmd.Context(), conf, d)
		if err != nil {
			return err
		}
		defer b.Close()
		var names []string
		for _, f := range b.Bundles {
			names = append(names, f.Name)
		}
		n := 0
		for _, s := range b.Set.Splits() {
			n += len(*s.Examples)
		}
		fmt.Printf("features of %d images by %s are in the cache\n", n, strings.Join(names, ", "))
		return nil
	})
}
