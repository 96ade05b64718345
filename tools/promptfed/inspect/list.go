package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"promptfed/federation/configtags"
	"promptfed/federation/data/partition"
	"promptfed/federation/data/sets"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/models/bundle"
	"promptfed/runtime/convert"
	"promptfed/runtime/oneline"
	"promptfed/tools/lab/traffic"
	"promptfed/tools/promptfed/cli"
)

func listCommand() *cobra.Command {
	bytes := false
	ofMethods := listOf("methods", "base methods, which learn prompts", listMethods(false), lines,
		cli.Shape{When: "NAME", Value: listedMethod{}}, cli.Shape{When: "--bytes", Value: []traffic.Row{}})
	ofMethods.Flags().BoolVar(&bytes, "bytes", false, "measure what each method and wrapper, or that of NAME, sends, "+
		"beside the papers' formulas")
	list := ofMethods.RunE

	ofMethods.RunE = func(command *cobra.Command, args []string) error {
		if !bytes {
			return list(command, args)
		}
		rows, err := traffic.Rows(args...)
		if err != nil {
			return err
		}
		if len(rows) == 0 { // an unknown name
			return list(command, args)
		}
		return cli.PrinterOf(command).Print(rows, align(traffic.Text(rows))+traffic.Note)
	}

	return orItsList(cli.Group("list", "list methods, wrappers, backbones, data sets or partitions; with NAME, the "+
		"details of one: options, papers", ofMethods,
		listOf("wrappers", "wrappers, which extend any base method", listMethods(true), lines,
			cli.Shape{When: "NAME", Value: listedMethod{}}),
		listOf("backbones", "bundles that are found by name", listBackbones, backboneTable,
			cli.Shape{When: "NAME", Value: inspected{}}),
		listOf("datasets", "image sets and the files that they expect", func() []dataSet {
			return convert.Slice(sets.Kinds(), func(k sets.Kind) dataSet { return dataSet{k} })
		}, lines, cli.Shape{When: "NAME", Value: dataSet{}}),
		listOf("partitions", "ways to distribute examples over clients", func() []partitionKind {
			return convert.Slice(partition.Kinds(), func(k partition.Kind) partitionKind { return partitionKind{k} })
		}, lines, cli.Shape{When: "NAME", Value: partitionKind{}})))
}

// orItsList lets a group of lists name the list of an entry that is given in place of a list.
func orItsList(group *cobra.Command) *cobra.Command {
	refuse := group.Args
	group.Args = func(command *cobra.Command, args []string) error {
		for _, list := range group.Commands() {
			if list.ValidArgsFunction == nil || len(args) == 0 {
				continue
			}
			if names, _ := list.ValidArgsFunction(list, nil, ""); slices.Contains(names, args[0]) {
				return cli.Usagef("%s is among the %s: use %s %s", args[0], list.Name(), list.CommandPath(), args[0])
			}
		}
		return refuse(command, args)
	}

	return group
}

// entry is one element of a list.
type entry interface {
	name() string
	line() string                      // after the name
	details() (value any, text string) // what the list prints for NAME
}

// listOf returns a command that prints all entries together, or the details of one.
func listOf[T entry](what, short string, entries func() []T, together func(what string, all []T) string,
	shapes ...cli.Shape) *cobra.Command {
	command := &cobra.Command{Use: what + " [NAME]", Short: short}
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return cli.Usagef("list %s takes one name at most, not %q", what, strings.Join(args, " "))
		}
		return nil
	}

	result := cli.AddJSON(command, []T{}, shapes...)
	command.RunE = func(_ *cobra.Command, args []string) error {
		all := entries()
		if len(args) == 0 {
			return result.Print(all, together(what, all))
		}
		i := slices.IndexFunc(all, func(e T) bool { return e.name() == args[0] })
		if i < 0 {
			return cli.Usagef("list %s: %q is unknown: %s", what, args[0], configtags.Suggest(args[0],
				convert.Slice(all, T.name), "promptfed list "+what+" shows all"))
		}
		return result.Print(all[i].details())
	}

	command.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return convert.Slice(entries(), T.name), cobra.ShellCompDirectiveNoFileComp
	}
	return command
}

func more(what string) string { return "promptfed list " + what + " NAME shows the details of one.\n" }

// lines returns a line for each entry.
func lines[T entry](what string, all []T) string {
	wide := 0
	for _, e := range all {
		wide = max(wide, len(e.name()))
	}

	var b strings.Builder
	for _, e := range all {
		b.WriteString(text.Snip(fmt.Sprintf("%-*s  %s", wide, e.name(), e.line()), max(40, cli.Width()), "…") + "\n")
	}

	return b.String() + more(what)
}

// listedMethod is a method or a wrapper with its paper and options.
type listedMethod struct {
	Name    string         `json:"name"`
	Title   string         `json:"title"`
	Wrapper bool           `json:"wrapper"`
	Paper   string         `json:"paper"`
	Options []layer.Option `json:"options"`
}

func listMethods(wrappers bool) func() []listedMethod {
	return func() (out []listedMethod) {
		for _, d := range methods.Table() {
			if d.Wrapper() == wrappers {
				out = append(out, listedMethod{d.Name, d.Title, wrappers, d.Paper, d.Options()})
			}
		}
		return out
	}
}

func (m listedMethod) name() string { return m.Name }
func (m listedMethod) line() string { return m.Title + "; " + m.Paper }
func (m listedMethod) details() (any, string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n  %s\n", m.Name, m.Title, m.Paper)
	for _, o := range m.Options {
		fmt.Fprintf(&b, "    %-16s %-14s %s\n", o.Name, o.Default, o.Help)
	}
	return m, b.String()
}

// dataSet is a kind of image set.
type dataSet struct{ sets.Kind }

func (s dataSet) name() string { return s.Name }
func (s dataSet) line() string { return s.About }
func (s dataSet) details() (any, string) {
	return s, fmt.Sprintf("%s: %s\n  expects: %s\n  from: %s\n", s.Name, s.About, s.Expects, s.Source)
}

// partitionKind is a way to distribute examples.
type partitionKind struct{ partition.Kind }

func (k partitionKind) name() string { return k.Name }
func (k partitionKind) line() string { return k.About }
func (k partitionKind) details() (any, string) {
	return k, fmt.Sprintf("%s: %s\n  source: %s\n", k.Name, k.About, k.Source)
}

// backbone is a bundle. Folder is empty for one in the program. Sizes are 0 if Problem says why it cannot be opened.
type backbone struct {
	Name         string `json:"name"`
	Architecture string `json:"architecture"`
	TextWidth    int    `json:"text_width"`
	EmbedDim     int    `json:"embed_dim"`
	ImageSize    int    `json:"image_size"` // side in pixels
	Folder       string `json:"folder"`
	Problem      string `json:"problem"`
}

func backboneOf(b *bundle.Bundle, folder string) backbone {
	return backbone{b.Name, b.Architecture, b.Text.Width, b.Text.EmbedDim, b.Vision.Image, folder, ""}
}

func listBackbones() []backbone {
	return convert.Slice(bundle.List(), func(e bundle.Entry) backbone {
		b, err := bundle.Find(e.Name)
		if err != nil {
			return backbone{Name: e.Name, Folder: e.Dir, Problem: oneline.Text(err.Error())}
		}
		return backboneOf(b, e.Dir)
	})
}

func (b backbone) name() string { return b.Name }
func (b backbone) line() string { return b.Architecture }
func (b backbone) details() (any, string) {
	r, err := bundle.Inspect(cmp.Or(b.Folder, b.Name))
	if err != nil {
		problem := oneline.Text(err.Error())
		return inspected{Report: bundle.Report{Path: b.Folder, Problem: problem}}, problem + "\n"
	}
	found := inspectedOf(r, false)
	return found, found.text()
}

func backboneTable(what string, all []backbone) string {
	rows := [][]string{{"name", "architecture", "text width", "embedding dimension", "image size", "folder"}}
	for _, b := range all {
		if b.Problem != "" {
			rows = append(rows, []string{b.Name, b.Problem, "", "", "", b.Folder})
			continue
		}
		rows = append(rows, []string{b.Name, b.Architecture, fmt.Sprint(b.TextWidth), fmt.Sprint(b.EmbedDim),
			fmt.Sprint(b.ImageSize), cmp.Or(b.Folder, "(in the program, a toy)")})
	}

	return align(rows) + "Those in the program are toys for trying it; " + experiment.ReplacementHint + ".\n" +
		more(what)
}
