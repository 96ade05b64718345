package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/methods"
	"promptfed/federation/partition"
	"promptfed/federation/sets"
	"promptfed/models/bundle"
)

func listCommand() *cobra.Command {
	c := &cobra.Command{Use: "list methods|wrappers|backbones|datasets|partitions",
		Short: "show what there is, with papers and options"}
	var models string
	c.PersistentFlags().StringVar(&models, "models", "", "folder with bundles by name")
	add := func(name, short string, text func() string) {
		c.AddCommand(&cobra.Command{Use: name, Short: short, Args: exactly(0), RunE: func(*cobra.Command,
			[]string) error {
			fmt.Print(text())
			return nil
		}})
	}
	c.AddCommand(listMethods())
	add("wrappers", "methods that work over any base method", func() string { return methodText(true) })
	add("datasets", "image sets and what they expect on disk", func() string { return align(dataRows()) })
	add("partitions", "ways to hand out examples to clients", func() string { return align(partitionRows()) })
	add("backbones", "bundles that are found by name", func() string { return align(backboneRows(models)) })
	c.Args = func(_ *cobra.Command, args []string) error {
		return usageError{fmt.Errorf("list takes one of methods, wrappers, backbones, datasets, partitions, not %q",
			strings.Join(args, " "))}
	}
	c.RunE = func(*cobra.Command, []string) error { return nil }
	return c
}

func listMethods() *cobra.Command {
	var bytes bool
	c := &cobra.Command{Use: "methods", Short: "base methods, that learn prompts", Args: exactly(0)}
	c.Flags().BoolVar(&bytes, "bytes", false, "what each method and wrapper sends, counted, beside the papers' formula")
	c.RunE = func(*cobra.Command, []string) error {
		if !bytes {
			fmt.Print(methodText(false))
			return nil
		}
		text, err := byteText()
		fmt.Print(text)
		return err
	}
	return c
}

// methodText lists methods with their papers and options.
func methodText(wrappers bool) string {
	var b strings.Builder
	for _, e := range methods.Table() {
		if e.Wrapper() != wrappers {
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n  %s\n", e.Name, e.Title, e.Paper)
		for _, o := range e.Options() {
			fmt.Fprintf(&b, "    %-16s %-14s %s\n", o.Name, o.Default, o.Help)
		}
	}
	return b.String()
}

func dataRows() [][]string {
	rows := [][]string{{"set", "what it is", "what it expects", "where it comes from"}}
	for _, k := range sets.Kinds() {
		rows = append(rows, []string{k.Name, k.About, k.Expects, k.Source})
	}
	return rows
}

func partitionRows() [][]string {
	rows := [][]string{{"kind", "what it does", "source"}}
	for _, k := range partition.Kinds() {
		rows = append(rows, []string{k.Name, k.About, k.Source})
	}
	return rows
}

func backboneRows(models string) [][]string {
	rows := [][]string{{"name", "architecture", "text width", "embedding dimension", "image size", "folder"}}
	for _, e := range bundle.List(models) {
		b, err := bundle.Find(e.Name, models)
		if err != nil {
			rows = append(rows, []string{e.Name, oneLine(err), "", "", "", e.Dir})
			continue
		}
		dir := e.Dir
		if dir == "" {
			dir = "(in the program)"
		}
		rows = append(rows, []string{b.Name, b.Architecture, fmt.Sprint(b.Text.Width), fmt.Sprint(b.Text.EmbedDim),
			fmt.Sprint(b.Vision.Image), dir})
	}
	return slices.Clip(rows)
}
