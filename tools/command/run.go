package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/tools/results"
)

func runCommand() *cobra.Command {
	var sets []string
	var out string
	var resume, smoke bool
	var seeds []uint
	var spread clusterFlags
	c := &cobra.Command{
		Use:   "run CONFIG... [--set key=value] [--seeds 1,2,3] [--smoke] [--cluster URL] [--out DIR] [--resume]",
		Args:  atLeast(1),
		Short: "run federated experiments; several are compared in one table; one with a section sweep is a sweep",
	}
	c.Flags().BoolVar(&smoke, "smoke", false, smokeHelp)
	c.Flags().StringArrayVar(&sets, "set", nil, "change a key of the configuration, as in train.lr=0.01")
	c.Flags().StringVar(&out, "out", "", "run folder (default runs/NAME); with several configurations, the folder "+
		"above them")
	c.Flags().UintSliceVar(&seeds, "seeds", nil, "run each configuration once with every seed; the table shows means "+
		"and standard deviations over seeds")
	c.Flags().BoolVar(&resume, "resume", false, "go on after the last finished round")
	spread.add(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		for _, path := range args {
			sweep, err := configs.IsSweep(path)
			if err != nil {
				return usageError{err}
			}
			if (sweep || smoke) && len(args) > 1 {
				return usageError{fmt.Errorf("%s is a sweep, or --smoke makes it one; run one sweep at a time", path)}
			}
			if sweep || smoke {
				return runSweep(cmd.Context(), path, sweepFlags{smoke: smoke, resume: resume, sets: sets, seeds: seeds,
					out: out, spread: spread})
			}
		}
		var dirs, folders []string
		var confs []experiment.Config
		for _, path := range args { // all of them are read before the first trains
			conf, err := load(path, sets)
			if err != nil {
				return err
			}
			dir := out
			if out == "" {
				dir = filepath.Join("runs", conf.Name)
			} else if len(args) > 1 {
				dir = filepath.Join(out, conf.Name)
			}
			dirs = append(dirs, dir)
			seeded, below := withSeeds(conf, dir, seeds)
			confs, folders = append(confs, seeded...), append(folders, below...)
		}
		for i, folder := range folders {
			if slices.Contains(folders[:i], folder) {
				return usageError{fmt.Errorf("two runs would have the folder %s; give configurations other names, "+
					"and each seed once", folder)}
			}
		}
		others, err := spread.open(cmd.Context())
		if err != nil {
			return err
		}
		defer others.close()
		for i, conf := range confs {
			if err := runOne(cmd.Context(), conf, folders[i], resume, others); err != nil {
				return fmt.Errorf("%s, seed %d: %w", conf.Name, conf.Seed, err)
			}
		}
		folder := out
		switch {
		case len(dirs) == 1:
			folder = dirs[0]
		case out == "":
			folder = comparisonFolder
		}
		text, err := writeReports(dirs, folder)
		if err != nil {
			return err
		}
		fmt.Print(text)
		fmt.Println("written to", folder)
		return nil
	}
	return c
}

// load reads a configuration; anything wrong with it is wrong usage.
func load(path string, sets []string) (experiment.Config, error) {
	conf, err := configs.Load(path, sets)
	if err == nil {
		err = conf.Check()
	}
	if err != nil {
		return conf, usageError{err}
	}
	return conf, nil
}

// runOne trains in a run folder and reports what it gave.
func runOne(ctx context.Context, conf experiment.Config, dir string, resume bool, others *cluster) error {
	d := newDisplay(conf)
	defer d.close()
	if _, err := train(ctx, conf, dir, resume, 0, d, others); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped; promptfed run --resume --out %s goes on after the last finished round", dir)
		}
		return err
	}
	_, err := writeReports([]string{dir}, dir)
	return err
}

// train runs an experiment in its folder; workers, unless 0, are the clients that train at a time. With a cluster, they
// train on other machines.
func train(ctx context.Context, conf experiment.Config, dir string, resume bool, workers int, m monitor,
	others *cluster) (*engine.Result, error) {
	if err := claim(dir, resume); err != nil {
		return nil, err
	}
	b, err := prepare(ctx, conf, m)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	// A run that goes on keeps the file until it is known to be the same experiment.
	writeUsed := func() error { return writeConfig(dir, b.Config) }
	if _, err := os.Stat(filepath.Join(dir, configFile)); !resume || err != nil {
		if err := writeUsed(); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(writeJSON(dir, clientsFile, b.Clients()), writeJSON(dir, results.DataFile,
		b.Info)); err != nil {
		return nil, err
	}
	events, err := newEventLog(dir, conf.Eval.TensorBoard)
	if err != nil {
		return nil, err
	}
	defer events.close()
	set := b.Settings()
	set.Dir, set.Resume, set.OnTurn, set.OnWarning = dir, resume, m.turn, m.warn
	set.OnRound = func(r record.Record) {
		m.round(r)
		events.round(r)
	}
	set.Workers = cmp.Or(workers, set.Workers)
	if others != nil {
		done, err := others.spread(ctx, b, &set)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	m.start(conf.Train.Rounds, len(b.Parts))
	r, err := engine.Run(ctx, b.Engine, set)
	if err != nil {
		return nil, err
	}
	if err := writeUsed(); err != nil {
		return nil, err
	}
	if conf.Eval.Embeddings > 0 {
		if err := b.WriteEmbeddings(ctx, dir, m.work); err != nil {
			return nil, err
		}
	}
	return r, events.close()
}

// Files of a run folder that are written here.
const (
	configFile  = results.ConfigFile
	clientsFile = results.ClientsFile
)

// writeConfig keeps the resolved configuration in the run folder.
func writeConfig(dir string, conf experiment.Config) error {
	text, err := configs.YAML(conf)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, configFile), text)
}

// writeJSON keeps what the run is about in a file of the run folder.
func writeJSON(dir, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, name), append(text, '\n'))
}

// claim makes the run folder, or refuses one that holds another run.
func claim(dir string, resume bool) error {
	if _, err := os.Stat(filepath.Join(dir, record.RoundsFile)); err == nil && !resume {
		return usageError{fmt.Errorf("%s holds a run already; use --resume to go on with it, or another --out", dir)}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the run folder: %w; use another --out", err)
	}
	f, err := os.CreateTemp(dir, ".write-*.tmp")
	if err != nil {
		return fmt.Errorf("cannot write into the run folder: %w; use another --out", err)
	}
	f.Close()
	return os.Remove(f.Name())
}

// asUsage marks what a wrong configuration caused, and leaves failures of the machine alone.
func asUsage(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) || errors.Is(err, context.Canceled) {
		return err
	}
	return usageError{err}
}
