package numbers

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"promptfed/federation/engine/record"
	"promptfed/tools/lab/results"
)

// Columns of every table. Columns for the axes of sweeps, named axis.NAME, stand before round.
const (
	runColumn    = "run"
	sweepColumn  = "sweep"
	methodColumn = "method"
	seedColumn   = "seed"
	axisColumn   = "axis."
	roundColumn  = "round"
	nameColumn   = "name"
	clientColumn = "client"
	valueColumn  = "value"
)

// SummaryKey is the prefix of the names of numbers in a summary.json.
const SummaryKey = "summary"

// Write writes the numbers of results as a table in one of Formats, one line per number, in the order of the runs: the
// numbers of every round, then with an empty round the numbers of the summary. Folders of runs are relative to from.
func Write(w io.Writer, form string, r *results.Results, from string) error {
	columns := []string{runColumn, sweepColumn, methodColumn, seedColumn}
	var axes []string
	for _, a := range results.Axes(r.Groups) {
		if a.Name != results.RunAxis {
			axes, columns = append(axes, a.Name), append(columns, axisColumn+a.Name)
		}
	}
	columns = append(columns, roundColumn, nameColumn, clientColumn, valueColumn)
	t, err := newTable(w, form, columns)
	if err != nil {
		return err
	}
	for _, g := range r.Groups {
		for _, run := range g.Runs {
			if run.State == results.Missing {
				continue
			}
			dir := run.Dir
			if rel, err := filepath.Rel(from, dir); err == nil {
				dir = rel
			}
			of := []any{filepath.ToSlash(dir), nil, run.Method, int64(run.Seed)}
			if g.Plan != nil {
				of[1] = g.Plan.Name
			}
			for _, a := range axes {
				of = append(of, nil)
				if label, ok := g.Labels[a]; ok {
					of[len(of)-1] = label
				}
			}
			err := each(run, func(round any, n Number) error {
				var client any
				if n.Client != NoClient {
					client = int64(n.Client)
				}
				return t.add(append(slices.Clip(of), round, n.Name("."), client, n.Value))
			})
			if err != nil {
				return fmt.Errorf("%s: %w", run.Dir, err)
			}
		}
	}
	return t.close()
}

// each calls f for the numbers of the valid rounds of a run and, with a nil round, of its summary if it has one.
func each(run *results.Run, f func(round any, n Number) error) error {
	all := func(round any, list []Number, err error) error {
		for _, n := range list {
			if err == nil {
				err = f(round, n)
			}
		}
		return err
	}
	if len(run.Rounds) > 0 {
		file, err := os.Open(filepath.Join(run.Dir, record.RoundsFile))
		if err != nil {
			return err
		}
		defer file.Close()
		in := bufio.NewReader(file)
		for i := range run.Rounds {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return err
			}
			list, err := Parse(line, "round")
			if err := all(int64(i), list, err); err != nil {
				return err
			}
		}
	}
	if run.State != results.Done {
		return nil
	}
	list, err := ParseSummary(run.Dir)
	return all(nil, list, err)
}

// ParseSummary lists the numbers of the summary of a finished run, each below SummaryKey.
func ParseSummary(dir string) ([]Number, error) {
	text, err := os.ReadFile(filepath.Join(dir, record.SummaryFile))
	if err != nil {
		return nil, err
	}
	list, err := Parse(text)
	for i, n := range list {
		list[i].Path = append([]string{SummaryKey}, n.Path...)
	}
	return list, err
}
