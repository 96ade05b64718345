package run

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/runfolder"
)

func sweepCommand(o cli.Outputs) *cobra.Command {
	flags := flags{outputs: o}
	command := &cobra.Command{
		Use: "sweep FILE [--smoke] [--set key=value] [--grid key=value,value] [--keep axis=label,label] " +
			"[--seeds 1,2] [--jobs N] [--array I/N] [--cluster URL] [--out DIR] [--resume] [--force]",
		Args: cli.Exactly(1), Short: "run every cell of a grid, several at a time; --resume continues where it was " +
			"stopped",
	}

	flags.add(command)
	flags.cluster.Add(command)
	flagSet := command.Flags()
	flagSet.StringArrayVar(&flags.keep, "keep", nil,
		"run only these labels of an axis, as in method=FedPHA,PromptFL")
	flagSet.StringArrayVar(&flags.grid, "grid", nil,
		"add an axis to the file, which may be that of a run, as in train.lr=0.01,0.05; several make every combination")
	flagSet.IntVar(&flags.jobs, "jobs", 0, "cells to run at a time (default: as many as the processors allow)")
	flagSet.Var(&flags.array, "array",
		"run only part I, from 0, of N parts of the cells, while other processes "+
			"run the others in the same folder, as in $SLURM_ARRAY_TASK_ID/8 or $JOB_COMPLETION_INDEX/8")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		if flags.array.Of > 0 && flags.use.Force {
			return cli.Usagef("--array and --force: the parts share one folder, which none of them may " +
				"empty; remove it first, or use another --out")
		}
		flags.use.Part = flags.array.Name()
		s, err := loadSweep(args[0], nil, flags)
		if err != nil {
			return err
		}
		return runSweep(cmd.Context(), s, flags)
	}

	return command
}

// loadSweep reads a sweep from text, or from the file at path if text is nil. An error is a usage error.
func loadSweep(path string, text []byte, flags flags) (*configs.Sweep, error) {
	options := configs.SweepOptions{Smoke: flags.smoke, Sets: flags.sets, Seeds: flags.seeds, Grid: flags.grid,
		Keep: map[string][]string{}}
	for _, k := range flags.keep {
		axis, labels, ok := strings.Cut(k, "=")
		if !ok || axis == "" || labels == "" {
			return nil, cli.Usagef("--keep %q: expected axis=label,label", k)
		}
		options.Keep[axis] = append(options.Keep[axis], strings.Split(labels, ",")...)
	}

	if flags.jobs < 0 {
		return nil, cli.Usagef("--jobs %d: expected 1 or more", flags.jobs)
	}

	if flags.jobs > 1 && flags.cluster.URL != "" {
		return nil, cli.Usagef("--jobs %d: with --cluster cells run one after the other, each on all machines",
			flags.jobs)
	}

	sweep, err := (*configs.Sweep)(nil), error(nil)
	if text == nil {
		sweep, err = configs.LoadSweep(path, options)
	} else {
		sweep, err = configs.ParseSweep(path, text, options)
	}

	if err != nil {
		return nil, cli.Usage(err)
	}

	return sweep, nil
}

// claimSweep claims the folder of a sweep until release is called, and writes the sweep and its plan. A folder with
// another sweep is an error.
func claimSweep(s *configs.Sweep, dir string, use runfolder.Use) (release func(), err error) {
	text, err := s.YAML()
	if err != nil {
		return nil, err
	}

	plan, err := s.Plan().JSON()
	if err != nil {
		return nil, err
	}

	if release, err = runfolder.ClaimSweep(s, dir, use); err != nil {
		return nil, err
	}

	// The plan is written last: it marks the folder as that of a sweep.
	err = atomicfile.Write(filepath.Join(dir, configs.SweepYAML), atomicfile.Bytes(text))
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, configs.PlanFile), atomicfile.Bytes(plan))
	}

	if err != nil {
		release()
	}

	return release, err
}

// finished reports whether the folder of a cell holds all files of a finished run, with all its rounds.
func finished(dir string, conf experiment.Config) bool {
	if runfolder.Has(dir, runfolder.ErrorFile) || conf.Eval.Embeddings > 0 && !runfolder.Has(dir,
		record.EmbeddingsFile) {
		return false
	}

	var summary record.Summary
	text, err := os.ReadFile(filepath.Join(dir, record.SummaryFile))
	if err != nil || json.Unmarshal(text, &summary) != nil {
		return false
	}

	rounds, err := record.Records(dir)
	return err == nil && len(rounds) == summary.Rounds
}
