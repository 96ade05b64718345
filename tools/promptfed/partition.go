package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/data"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
)

func partitionCommand() *cobra.Command {
	var sets []string
	var file string
	c := &cobra.Command{Use: "partition CONFIG [--json FILE]", Args: exactly(1), Short: "show who gets which examples"}
	c.Flags().StringArrayVar(&sets, "set", nil, "change a key of the configuration")
	c.Flags().StringVar(&file, "json", "", "write the partition to a file")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		conf, err := load(args[0], sets)
		if err != nil {
			return err
		}
		d := newDisplay(conf)
		defer d.close()
		b, err := experiment.OpenData(cmd.Context(), conf, d.work)
		if err != nil {
			return asUsage(err)
		}
		fmt.Print(data.Table(b.Set, b.Parts))
		if file == "" {
			return nil
		}
		var text bytes.Buffer
		if err := data.WriteJSON(&text, b.Set, b.Parts); err != nil {
			return err
		}
		return atomicfile.Write(file, func(w io.Writer) error {
			_, err := text.WriteTo(w)
			return err
		})
	}
	return c
}

func featuresCommand() *cobra.Command {
	var sets []string
	c := &cobra.Command{Use: "features CONFIG", Args: exactly(1), Short: "fill the feature cache"}
	c.Flags().StringArrayVar(&sets, "set", nil, "change a key of the configuration")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		conf, err := load(args[0], sets)
		if err != nil {
			return err
		}
		d := newDisplay(conf)
		defer d.close()
		b, err := experiment.Open(cmd.Context(), conf, d.work)
		if err != nil {
			return asUsage(err)
		}
		if err := b.Features(cmd.Context(), d.work); err != nil {
			return err
		}
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
	}
	return c
}
