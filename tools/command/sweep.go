package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/tools/results"
)

// sweepFlags are what the command line changes of a sweep.
type sweepFlags struct {
	smoke, resume bool
	sets, keep    []string
	seeds         []uint
	jobs          int
	out           string
	spread        clusterFlags
}

func sweepCommand() *cobra.Command {
	var f sweepFlags
	c := &cobra.Command{
		Use: "sweep FILE [--smoke] [--set key=value] [--keep axis=label,label] [--seeds 1,2] [--jobs N] [--cluster " +
			"URL] [--out DIR] [--resume]",
		Args: exactly(1), Short: "run every cell of a grid, side by side; goes on where it was stopped",
	}
	c.Flags().BoolVar(&f.smoke, "smoke", false, smokeHelp)
	c.Flags().StringArrayVar(&f.sets, "set", nil, "change a key of every cell, as in train.lr=0.01")
	c.Flags().StringArrayVar(&f.keep, "keep", nil, "labels of an axis that run, as in method=FedPHA,PromptFL")
	c.Flags().UintSliceVar(&f.seeds, "seeds", nil, "seeds, in place of the file's")
	c.Flags().IntVar(&f.jobs, "jobs", 0, "cells that run at a time (default: as many as there are processors for)")
	c.Flags().StringVar(&f.out, "out", "", "folder of the sweep (default runs/NAME)")
	c.Flags().BoolVar(&f.resume, "resume", false, "go on with the cells that are not done; failed ones are tried again")
	f.spread.add(c)
	c.RunE = func(cmd *cobra.Command, args []string) error { return runSweep(cmd.Context(), args[0], f) }
	return c
}

const smokeHelp = "the small form that the file describes, with what it draws and trains in a minute"

// loadSweep reads a sweep file; anything wrong with it is wrong usage.
func loadSweep(path string, f sweepFlags) (*configs.Sweep, error) {
	o := configs.SweepOptions{Smoke: f.smoke, Sets: f.sets, Keep: map[string][]string{}}
	for _, k := range f.keep {
		axis, labels, ok := strings.Cut(k, "=")
		if !ok || axis == "" || labels == "" {
			return nil, usageError{fmt.Errorf("--keep %q: expected axis=label,label", k)}
		}
		o.Keep[axis] = append(o.Keep[axis], strings.Split(labels, ",")...)
	}
	for _, s := range f.seeds {
		o.Seeds = append(o.Seeds, uint64(s))
	}
	if f.jobs < 0 {
		return nil, usageError{fmt.Errorf("--jobs %d: take 1 or more", f.jobs)}
	}
	if f.jobs > 1 && f.spread.url != "" {
		return nil, usageError{fmt.Errorf("--jobs %d: with --cluster cells run one after the other, each on all "+
			"machines", f.jobs)}
	}
	s, err := configs.LoadSweep(path, o)
	if err != nil {
		return nil, usageError{err}
	}
	return s, nil
}

// claimSweep makes the folder of a sweep and writes down what the sweep is, or refuses a folder that holds another one.
func claimSweep(s *configs.Sweep, dir string, resume bool) error {
	switch _, err := os.Stat(filepath.Join(dir, configs.PlanFile)); {
	case err == nil && !resume:
		return usageError{fmt.Errorf("%s holds a sweep already; use --resume to go on with it, or another --out", dir)}
	case err == nil:
		if err := s.Same(dir); err != nil {
			return usageError{err}
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	default:
		if _, err := os.Stat(filepath.Join(dir, record.RoundsFile)); err == nil {
			return usageError{fmt.Errorf("%s holds a single run, not a sweep; use another --out", dir)}
		}
	}
	if err := claim(dir, resume); err != nil {
		return err
	}
	text, err := s.YAML()
	if err != nil {
		return err
	}
	plan, err := s.Plan().JSON()
	if err != nil {
		return err
	}
	// The plan comes last: with it the folder is a sweep's.
	if err := writeFile(filepath.Join(dir, configs.SweepYAML), text); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, configs.PlanFile), plan)
}

// finished tells whether the folder of a cell holds everything that its run gives.
func finished(dir string, conf experiment.Config) bool {
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	return there(record.SummaryFile) && !there(results.ErrorFile) && (conf.Eval.Embeddings == 0 ||
		there(experiment.EmbeddingsFile))
}
