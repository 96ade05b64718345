package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/configtags"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/models/bundle"
	"promptfed/tools/lab/tables"
	"promptfed/tools/lab/traffic"
	"promptfed/tools/promptfed/cli"
)

func listCommand() *cobra.Command {
	bytes := false
	ofMethods := listOf("methods", "base methods, which learn prompts", func() []entry { return methodEntries(false) },
		func(all []entry) (string, error) {
			if !bytes {
				return lines("methods", all), nil
			}
			rows, err := traffic.Rows()
			if err != nil {
				return "", err
			}
			return align(rows) + traffic.Note, nil
		})
	ofMethods.Flags().BoolVar(&bytes, "bytes", false, "measure what each method and wrapper sends, beside the "+
		"papers' formulas")
	plain := func(what, short string, entries func() []entry) *cobra.Command {
		return listOf(what, short, entries, func(all []entry) (string, error) { return lines(what, all), nil })
	}
	return cli.Group("list", "list methods, wrappers, backbones, data sets or partitions; with NAME, the details of "+
		"one: options, papers", ofMethods,
		plain("wrappers", "wrappers, which extend any base method", func() []entry { return methodEntries(true) }),
		listOf("backbones", "bundles that are found by name", backboneEntries, func([]entry) (string, error) {
			return align(backboneRows()) + "Those in the program are toys for trying it; " +
				experiment.ReplacementHint + ".\n" + more("backbones"), nil
		}),
		plain("datasets", "image sets and the files that they expect", dataEntries),
		plain("partitions", "ways to distribute examples over clients", partitionEntries))
}

// entry is one element of a list: its name, its line and its full description.
type entry struct {
	name, line string
	whole      func() string
}

// listOf returns a command that prints all entries together, or the full description of one.
func listOf(what, short string, entries func() []entry, together func(all []entry) (string, error)) *cobra.Command {
	c := &cobra.Command{Use: what + " [NAME]", Short: short}
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return cli.Usagef("list %s takes one name at most, not %q", what, strings.Join(args, " "))
		}
		return nil
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		all := entries()
		if len(args) == 0 {
			text, err := together(all)
			fmt.Print(text)
			return err
		}
		i := slices.IndexFunc(all, func(e entry) bool { return e.name == args[0] })
		if i < 0 {
			return cli.Usagef("list %s: %q is unknown: %s", what, args[0], configtags.Suggest(args[0], namesOf(all),
				"promptfed list "+what+" shows all"))
		}
		fmt.Print(all[i].whole())
		return nil
	}
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return namesOf(entries()), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

func more(what string) string { return "promptfed list " + what + " NAME shows the details of one.\n" }

// lines returns a line for each entry.
func lines(what string, all []entry) string {
	wide := 0
	for _, e := range all {
		wide = max(wide, len(e.name))
	}
	var b strings.Builder
	for _, e := range all {
		b.WriteString(tables.Truncate(fmt.Sprintf("%-*s  %s", wide, e.name, e.line), max(40, cli.Width())) + "\n")
	}
	return b.String() + more(what)
}

func namesOf(list []entry) []string {
	var out []string
	for _, e := range list {
		out = append(out, e.name)
	}
	return out
}

// methodEntries lists methods with their papers and options.
func methodEntries(wrappers bool) []entry {
	var out []entry
	for _, d := range methods.Table() {
		if d.Wrapper() != wrappers {
			continue
		}
		out = append(out, entry{d.Name, d.Title + "; " + d.Paper, func() string {
			var b strings.Builder
			fmt.Fprintf(&b, "%s: %s\n  %s\n", d.Name, d.Title, d.Paper)
			for _, o := range d.Options() {
				fmt.Fprintf(&b, "    %-16s %-14s %s\n", o.Name, o.Default, o.Help)
			}
			return b.String()
		}})
	}
	return out
}

func dataEntries() []entry {
	var out []entry
	for _, k := range sets.Kinds() {
		out = append(out, entry{k.Name, k.About, func() string {
			return fmt.Sprintf("%s: %s\n  expects: %s\n  from: %s\n", k.Name, k.About, k.Expects, k.Source)
		}})
	}
	return out
}

func partitionEntries() []entry {
	var out []entry
	for _, k := range partition.Kinds() {
		out = append(out, entry{k.Name, k.About, func() string {
			return fmt.Sprintf("%s: %s\n  source: %s\n", k.Name, k.About, k.Source)
		}})
	}
	return out
}

func backboneEntries() []entry {
	var out []entry
	for _, e := range bundle.List() {
		out = append(out, entry{name: e.Name, whole: func() string {
			r, err := bundle.Inspect(cmp.Or(e.Dir, e.Name))
			if err != nil {
				return cli.OneLine(err) + "\n"
			}
			return inspected(r, inspectRows(r, false))
		}})
	}
	return out
}

func backboneRows() [][]string {
	rows := [][]string{{"name", "architecture", "text width", "embedding dimension", "image size", "folder"}}
	for _, e := range bundle.List() {
		b, err := bundle.Find(e.Name)
		if err != nil {
			rows = append(rows, []string{e.Name, cli.OneLine(err), "", "", "", e.Dir})
			continue
		}
		dir := e.Dir
		if dir == "" {
			dir = "(in the program, a toy)"
		}
		rows = append(rows, []string{b.Name, b.Architecture, fmt.Sprint(b.Text.Width), fmt.Sprint(b.Text.EmbedDim),
			fmt.Sprint(b.Vision.Image), dir})
	}
	return slices.Clip(rows)
}
