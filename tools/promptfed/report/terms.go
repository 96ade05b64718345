package report

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/engine"
	"promptfed/federation/experiment"
	"promptfed/tools/lab/bench"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/tables"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

// termsFlags are the flags of terms.
type termsFlags struct {
	rounds          int
	full, short, md bool
	sets            []string
}

func termsCommand() *cobra.Command {
	f := termsFlags{rounds: 3}
	c := &cobra.Command{Use: "terms CONFIG... [--rounds N] [--set key=value] [--full-size]", Args: cli.AtLeast(1),
		Short: "run a few rounds and show each term of the loss: its value, and the norm of its gradient relative to " +
			"cross entropy's"}
	c.Flags().IntVar(&f.rounds, "rounds", f.rounds, "number of rounds; only the last is tested")
	c.Flags().StringArrayVar(&f.sets, "set", nil, "change a key of the configurations, as in train.lr=0.01")
	c.Flags().BoolVar(&f.full, "full-size", false, "use ViT-B/16's text tower with random weights instead of the "+
		"backbones, and random unit vectors as image features")
	c.Flags().BoolVar(&f.short, "short", false, "show only all parameters together")
	c.Flags().BoolVar(&f.md, "markdown", false, "print a Markdown table")
	c.RunE = func(cmd *cobra.Command, paths []string) error {
		if f.rounds < 1 {
			return cli.Needed("terms", "--rounds of 1 or more")
		}
		out := termsTable{termsFlags: f, several: len(paths) > 1 || f.md}
		for _, path := range paths {
			conf, err := cli.Load(path, f.sets)
			if err != nil {
				return err
			}
			rounds, err := f.measure(cmd.Context(), conf.Config)
			if err != nil && len(paths) > 1 {
				err = fmt.Errorf("%s: %w", path, err)
			}
			if err != nil {
				return err
			}
			out.add(conf.Name, rounds)
		}
		fmt.Print(out.String())
		return nil
	}
	return c
}

// measure runs a configuration in memory and measures its terms.
func (f termsFlags) measure(ctx context.Context, conf experiment.Config) ([]results.Round, error) {
	conf.Eval.Terms, conf.Eval.Every, conf.Train.Rounds = true, f.rounds, f.rounds
	d := progress.New(conf)
	defer d.Close()
	b, err := cli.Prepare(ctx, conf, d)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if f.full {
		dir, err := os.MkdirTemp("", "promptfed-terms-")
		if err != nil {
			return nil, fmt.Errorf("no folder for random weights: %w; set TMPDIR to a folder with room for 200 MB", err)
		}
		defer os.RemoveAll(dir)
		if err := bench.FullSize(b.Engine, b.Bundles[0], dir); err != nil {
			return nil, err
		}
	}
	set := b.Settings()
	set.OnTurn, set.OnRound = d.Turn, d.Round
	d.Start(f.rounds, len(b.Engine.Clients))
	r, err := engine.Run(ctx, b.Engine, set)
	if err != nil {
		return nil, err
	}
	var out []results.Round
	for _, rec := range r.Records {
		out = append(out, results.Round{Record: rec})
	}
	return out, nil
}

// termsTable is the table that terms prints.
type termsTable struct {
	termsFlags
	several bool
	rows    [][]string
	notes   []string
}

func (t *termsTable) add(name string, rounds []results.Round) {
	list := results.Terms(rounds)
	if len(list) == 0 {
		t.notes = append(t.notes, name+" learns nothing and has no terms")
	}
	for _, term := range list {
		if t.short && term.Param != "" {
			continue
		}
		last := len(term.Rounds) - 1
		row := []string{term.Name, cmp.Or(term.Param, "all"), number(term.Value[0]), number(term.Value[last]),
			number(term.Norm[0]), number(term.Norm[last]),
			number(term.Relative[0]), number(term.Relative[last])}
		if t.several {
			row = append([]string{name}, row...)
		}
		t.rows = append(t.rows, row)
		if term.Param == "" && term.Rounds[0] != rounds[0].Round {
			t.notes = append(t.notes, fmt.Sprintf("%s: %s begins in round %d", name, term.Name, term.Rounds[0]))
		}
	}
	for _, term := range results.VanishingTerms(rounds) {
		t.notes = append(t.notes, results.VanishingNote(name, term, rounds))
	}
}

// number returns three digits, or "-" for NaN.
func number(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.3g", v)
}

func (t *termsTable) String() string {
	heads := []string{"term", "on", "value first", "last", "gradient first", "last", "relative first", "last"}
	texts := 2
	if t.several {
		heads, texts = append([]string{"run"}, heads...), 3
	}
	if len(t.rows) == 0 {
		return strings.Join(t.notes, "\n") + "\n"
	}
	var b strings.Builder
	caption := fmt.Sprintf("Means over clients and steps of the first and of the last of %d rounds. gradient: norm "+
		"of the term's gradient with respect to a parameter, or to all together; relative: divided by that of all "+
		"cross entropies together, - if these do not depend on the parameter.", t.rounds)
	if t.md {
		b.WriteString(tables.MarkdownRows(append([][]string{heads}, t.rows...), texts))
	} else {
		b.WriteString(tables.PlainText(append([][]string{heads}, t.rows...), texts))
	}
	b.WriteString("\n" + caption + "\n")
	for _, n := range t.notes {
		b.WriteString("note: " + n + "\n")
	}
	return b.String()
}
