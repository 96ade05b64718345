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

func termsCommand() *cobra.Command {
	rounds, full, short, md := 3, false, false, false
	var sets []string
	command := &cobra.Command{Use: "terms CONFIG... [--rounds N] [--set key=value] [--full-size]", Args: cli.AtLeast(1),
		Short: "run a few rounds and show each term of the loss: its value, and the norm of its gradient relative to " +
			"cross entropy's"}
	command.Flags().IntVar(&rounds, "rounds", rounds, "number of rounds")
	command.Flags().StringArrayVar(&sets, "set", nil, cli.SetHelp)
	command.Flags().BoolVar(&full, "full-size", false, "use ViT-B/16's text tower with random weights instead of the "+
		"backbones, and random unit vectors as image features")
	command.Flags().BoolVar(&short, "short", false, "show only all parameters together")
	command.Flags().BoolVar(&md, "markdown", false, "print a Markdown table")
	result := cli.AddJSON(command, measuredTerms{})
	command.RunE = func(cmd *cobra.Command, paths []string) error {
		if rounds < 1 {
			return cli.Needed("terms", "--rounds of 1 or more")
		}

		rows := [][]string{{"run", "term", "on", "value first", "last", "gradient first", "last", "relative first",
			"last"}}
		out := measuredTerms{Rounds: rounds, Stationarity: []stationarity{}}
		for _, path := range paths {
			conf, err := cli.Load(path, sets)
			if err != nil {
				return err
			}

			measured, start, err := measureTerms(cmd.Context(), conf.Config, rounds, full)
			if err != nil && len(paths) > 1 {
				err = fmt.Errorf("%s: %w", path, err)
			}

			if err != nil {
				return err
			}

			for _, t := range results.Terms(measured) {
				if !short || t.Param == "" {
					n := len(t.Value) - 1
					out.Terms = append(out.Terms, measuredTerm{conf.Name, t.Name, t.Param, t.Rounds[0] + 1, t.Value[0],
						t.Value[n], t.Norm[0], t.Norm[n], t.Relative[0], t.Relative[n]})
				}
			}

			if start != nil {
				out.Stationarity = append(out.Stationarity, *start)
			}

			out.Notes = append(out.Notes, termNotes(conf.Name, measured)...)
		}

		for _, t := range out.Terms {
			rows = append(rows, t.row())
		}

		layout, texts := tables.PlainText, 3
		if md {
			layout = tables.MarkdownRows
		} else if len(paths) == 1 {
			texts = 2
			for i, row := range rows {
				rows[i] = row[1:]
			}
		}

		var text strings.Builder
		if len(rows) > 1 {
			fmt.Fprintf(&text, "%s\nMeans over clients and steps of the first and of the last of %d rounds. gradient: "+
				"norm of the term's gradient with respect to a parameter, or to all together; relative: divided by "+
				"that of all cross entropies together, - if these do not depend on the parameter.\n",
				layout(rows, texts), rounds)
		}

		for _, s := range out.Stationarity {
			fmt.Fprintln(&text, s)
		}

		for _, n := range out.Notes {
			fmt.Fprintln(&text, "note:", n)
		}

		return result.Print(out, text.String())
	}

	return command
}

// measuredTerms are the terms of some configurations.
type measuredTerms struct {
	Rounds int            `json:"rounds"`
	Terms  []measuredTerm `json:"terms"`
	// Stationarity leaves out runs that share nothing.
	Stationarity []stationarity `json:"stationarity"`
	Notes        []string       `json:"notes"`
}

// measuredTerm is a term in its first and in the last round: its value, and the norm of its gradient with respect to a
// parameter, or to all for an empty Param, also relative to that of all cross entropies. Unknown values are NaN.
type measuredTerm struct {
	Run           string  `json:"run"`
	Term          string  `json:"term"`
	Param         string  `json:"param"`
	Round         int     `json:"first_round"` // from 1
	FirstValue    float64 `json:"value_first"`
	LastValue     float64 `json:"value_last"`
	FirstNorm     float64 `json:"norm_first"`
	LastNorm      float64 `json:"norm_last"`
	FirstRelative float64 `json:"relative_first"`
	LastRelative  float64 `json:"relative_last"`
}

// measureTerms runs a configuration in memory for some rounds and measures its terms and its stationarity.
func measureTerms(ctx context.Context, conf experiment.Config, rounds int,
	full bool) ([]results.Round, *stationarity, error) {
	conf.Eval.Terms, conf.Eval.Every, conf.Train.Rounds = true, rounds, rounds
	display := progress.New(conf)
	defer display.Close()
	federation, err := cli.Prepare(ctx, conf, display)
	if err != nil {
		return nil, nil, err
	}
	defer federation.Close()

	if full {
		dir, err := os.MkdirTemp("", "promptfed-terms-")
		if err != nil {
			return nil, nil, fmt.Errorf("no folder for random weights: %w; set TMPDIR to a folder with room for 200 MB",
				err)
		}
		defer os.RemoveAll(dir)
		if err := bench.FullSize(federation.Experiment, federation.Task.Backbones.Distinct[0], dir); err != nil {
			return nil, nil, err
		}
	}

	set := federation.Settings()
	set.OnTurn, set.OnRound = display.Turn, display.Round
	display.Start(rounds, len(federation.Experiment.Clients))
	start := newStartGradients(federation.Experiment, rounds)
	set.Client.Tracer = start
	measured, err := inMemory(ctx, federation, set)
	return measured, start.result(conf.Name), err
}

// inMemory runs an experiment without a folder and returns its rounds.
func inMemory(ctx context.Context, f *experiment.Federation, set engine.Settings) (out []results.Round, err error) {
	r, err := engine.Run(ctx, f.Experiment, set)
	if err != nil {
		return nil, err
	}

	for _, rec := range r.Records {
		out = append(out, results.Round{Record: rec})
	}

	return out, nil
}

func (t measuredTerm) row() []string {
	row := []string{t.Run, t.Term, cmp.Or(t.Param, "all")}
	for _, v := range []float64{t.FirstValue, t.LastValue, t.FirstNorm, t.LastNorm, t.FirstRelative, t.LastRelative} {
		row = append(row, number(v))
	}
	return row
}

// termNotes names the terms that begin late, and those without effect.
func termNotes(name string, rounds []results.Round) (notes []string) {
	list := results.Terms(rounds)
	if len(list) == 0 {
		notes = append(notes, name+" learns nothing and has no terms")
	}

	for _, t := range list {
		if t.Param == "" && t.Rounds[0] != rounds[0].Round {
			notes = append(notes, fmt.Sprintf("%s: %s begins in round %d", name, t.Name, t.Rounds[0]+1))
		}
	}

	for _, t := range results.VanishingTerms(rounds) {
		notes = append(notes, results.VanishingNote(name, t, rounds))
	}

	return notes
}

// number returns three digits, or "-" for NaN.
func number(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.3g", v)
}
