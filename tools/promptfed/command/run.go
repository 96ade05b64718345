package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/lab/report"
	"promptfed/tools/lab/results"
	"promptfed/tools/lab/trackers"
	"promptfed/tools/promptfed/progress"
	"promptfed/tools/promptfed/quickstart"
	"promptfed/tools/promptfed/runfolder"
	"promptfed/tools/promptfed/signals"
)

// runFlags are those of the command run.
type runFlags struct {
	sets        []string
	out, images string
	use         runfolder.Use
	smoke       bool
	seeds       seedList
	log         []string
	spread      clusterFlags
	shown       shownFlags
}

func runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "run CONFIG...|--images FOLDER [--set key=value] [--seeds 1-3] [--smoke] [--cluster URL] [--out DIR] " +
			"[--resume] [--force]",
		Short: "run federated experiments; several are compared in one table; a file with a section sweep runs as a " +
			"sweep",
	}
	f.add(c)
	f.spread.add(c)
	c.RunE = func(cmd *cobra.Command, args []string) error { return f.start(cmd.Context(), args) }
	return c
}

// add adds the flags of a run, and what its arguments must be.
func (f *runFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.smoke, "smoke", false, smokeHelp)
	c.Flags().StringArrayVar(&f.sets, "set", nil, "change a key of the configuration, as in train.lr=0.01")
	c.Flags().StringVar(&f.images, "images", "", "images to run on: a folder, a list or Parquet files; without "+
		"CONFIG, methods are compared on them, as in the file that promptfed init writes")
	c.Flags().StringVar(&f.out, "out", "", "run folder (default runs/NAME); with several configurations, the folder "+
		"above them")
	c.Flags().Var(&f.seeds, "seeds", "run each configuration with every seed, as in 1,2,3 or 1-3; the table shows "+
		"means and standard deviations over seeds")
	c.Flags().BoolVar(&f.use.Resume, "resume", false, "continue after the last finished round")
	c.Flags().BoolVar(&f.use.Force, "force", false, forceHelp)
	c.Flags().StringArrayVar(&f.log, "log", nil, trackers.Help)
	f.shown.add(c)
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && f.images == "" {
			return usageError{fmt.Errorf("%s needs a configuration, or --images FOLDER: %s", c.Name(), c.UseLine())}
		}
		return nil
	}
}

// start runs the configurations, or the sweep.
func (f *runFlags) start(ctx context.Context, args []string) error {
	if err := trackers.Check(f.log); err != nil {
		return usageError{err}
	}
	sweep, err := f.sweep(args)
	if err != nil {
		return err
	}
	if sweep != nil {
		return runSweep(ctx, sweep, f.ofSweep())
	}
	return f.run(ctx, args)
}

// ofSweep are the flags of a sweep.
func (f runFlags) ofSweep() sweepFlags {
	return sweepFlags{smoke: f.smoke, use: f.use, sets: f.sets, seeds: f.seeds, out: f.out, log: f.log,
		spread: f.spread, shown: f.shown}
}

// sweep is what the command line asks for where that is a sweep; nil where it is single runs. Images are looked at
// here, and become changes of the configurations, where there are any.
func (f *runFlags) sweep(args []string) (*configs.Sweep, error) {
	if f.images != "" && len(args) == 0 {
		if f.smoke {
			return nil, usageError{errors.New("--smoke is for sweep files, not for --images")}
		}
		p, err := plan(f.images, f.sets)
		if err != nil {
			return nil, err
		}
		of := f.ofSweep()
		of.sets = p.Changes
		return loadSweep("the configuration for "+f.images, p.Text, of)
	}
	if f.images != "" {
		kind, err := quickstart.Kind(f.images)
		if err != nil {
			return nil, usageError{err}
		}
		f.sets = append([]string{"data.set=" + kind, "data.root=" + strconv.Quote(f.images)}, f.sets...)
	}
	for _, path := range args {
		sweep, err := configs.IsSweep(path)
		if err != nil {
			return nil, usageError{err}
		}
		if (sweep || f.smoke) && len(args) > 1 {
			return nil, usageError{fmt.Errorf("%s is a sweep, or --smoke makes it one; run one sweep at a time", path)}
		}
		if sweep || f.smoke {
			return loadSweep(path, nil, f.ofSweep())
		}
	}
	return nil, nil
}

// plan chooses an experiment for some images, and says what was found and chosen.
func plan(images string, sets []string) (*quickstart.Plan, error) {
	p, err := quickstart.For(images, sets)
	if err != nil {
		return nil, usageError{err}
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n%s: partition %s\n", p.Name, p.Found, p.Name, p.Parts)
	return p, nil
}

// run trains single runs, one after the other, and compares them.
func (f runFlags) run(ctx context.Context, args []string) error {
	var dirs, folders []string
	var confs []configs.Loaded
	for _, path := range args { // all of them are read before the first trains
		conf, err := load(path, f.sets)
		if err != nil {
			return err
		}
		dir := cmp.Or(f.out, filepath.Join(runsFolder, conf.Name))
		if f.out != "" && len(args) > 1 {
			dir = filepath.Join(f.out, conf.Name)
		}
		dirs = append(dirs, dir)
		seeded, below := withSeeds(conf, dir, f.seeds)
		confs, folders = append(confs, seeded...), append(folders, below...)
	}
	for i, folder := range folders {
		if slices.Contains(folders[:i], folder) {
			return usageError{fmt.Errorf("two runs would use the folder %s; give the configurations different "+
				"names", folder)}
		}
		if err := runfolder.Check(folder, f.use); err != nil {
			return err
		}
	}
	others, err := f.spread.open(ctx)
	if err != nil {
		return err
	}
	defer others.close()
	if f.use.Force || f.use.Resume {
		f.use.Changed = folders
	}
	series := progress.Series{Runs: len(confs)}
	for _, conf := range confs {
		series.Rounds += conf.Train.Rounds
	}
	for i, conf := range confs {
		if err := f.one(ctx, conf.Config, folders[i], others, &series); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("%s, seed %d: %w", conf.Name, conf.Seed, conf.Blame(err))
		}
	}
	folder := f.out
	switch {
	case len(dirs) == 1:
		folder = dirs[0]
	case f.out == "":
		folder = comparisonFolder
	}
	r, err := writeReports(dirs, folder)
	if err != nil {
		return err
	}
	f.shown.show(r)
	fmt.Printf("written to %s; %s shows it\n", folder, filepath.Join(folder, report.Page))
	return nil
}

// load reads a configuration; anything wrong with it is wrong usage.
func load(path string, sets []string) (configs.Loaded, error) {
	return loadChecked(path, sets, configs.Loaded.Check)
}

// loadChecked is load with a check of its own.
func loadChecked(path string, sets []string, check func(configs.Loaded) error) (configs.Loaded, error) {
	l, err := configs.Open(path, sets)
	if err == nil {
		err = check(l)
	}
	if err != nil {
		return l, usageError{err}
	}
	for _, n := range l.Notes {
		fmt.Fprintln(os.Stderr, "promptfed: note:", n)
	}
	return l, nil
}

// one trains in a run folder and reports what it gave.
func (f runFlags) one(ctx context.Context, conf experiment.Config, dir string, others *cluster,
	series *progress.Series) error {
	d := series.New(conf)
	defer d.Close()
	if _, err := (training{dir: dir, use: f.use, log: f.log, others: others}).run(ctx, conf, d); err != nil {
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		return err
	}
	_, err := writeReports([]string{dir}, dir)
	return err
}

// stopped is the error of work that was interrupted, with the line that goes on with it.
func stopped(ctx context.Context) error {
	return fmt.Errorf("stopped; to continue: %s", runfolder.Again(ctx, "--resume"))
}

// training says how an experiment is run, beside its configuration.
type training struct {
	dir     string
	use     runfolder.Use
	log     []string // what rounds are sent to (trackers.Check)
	workers int      // clients that train at a time; 0 for those of the configuration
	beside  bool     // other runs, with which it shares the processors
	others  *cluster // where clients train on other machines
}

// run runs an experiment in its folder.
func (t training) run(ctx context.Context, conf experiment.Config, m progress.Monitor) (r *engine.Result, err error) {
	began, dir, use := time.Now(), t.dir, t.use
	if err := runfolder.Check(dir, use); err != nil { // before long work
		return nil, err
	}
	b, err := open(ctx, conf, m)
	if err != nil {
		return nil, err
	}
	id, err := b.Identity(ctx, m.Work)
	if err == nil {
		err = runfolder.CheckExperiment(dir, id, use)
	}
	if err == nil {
		err = computeFeatures(ctx, b, m)
	}
	if err != nil {
		return nil, err
	}
	defer b.Close()
	release, err := runfolder.Claim(dir, use)
	if err != nil {
		return nil, err
	}
	defer release()
	end, err := runfolder.Begin(ctx, dir, b, runfolder.DataOf(b), began)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := end(err); err == nil {
			err = e
		}
	}()
	if err := errors.Join(writeConfig(dir, b.Config), id.Write(dir), writeInfo(dir, results.ClientsFile, b.Clients()),
		writeInfo(dir, results.DataFile, b.Info)); err != nil {
		return nil, err
	}
	log, err := openLog(dir, t.log, b, m)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := log.Close(err); err == nil {
			err = e
		}
	}()
	set, finish := b.Settings(), signals.Of(ctx)
	set.Dir, set.Resume, set.OnTurn, set.OnWarning = dir, use.Resume, m.Turn, m.Warn
	set.OnRound = func(r record.Record) {
		m.Round(r)
		log.Round(r)
		finish.Round()
	}
	if set.Workers = cmp.Or(t.workers, set.Workers); t.beside {
		set.Session.Runs = 0
	}
	if t.others != nil {
		done, err := t.others.spread(ctx, b, &set)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	m.Start(conf.Train.Rounds, len(b.Parts))
	defer finish.Begin()()
	if r, err = engine.Run(ctx, b.Engine, set); err != nil {
		return nil, err
	}
	if conf.Eval.Embeddings > 0 {
		if err := b.WriteEmbeddings(ctx, dir, m.Work); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// openLog begins to send a run to what the command line and the configuration name.
func openLog(dir string, targets []string, b *experiment.Built, m progress.Monitor) (*trackers.Log, error) {
	conf := b.Config
	if conf.Eval.TensorBoard {
		targets = append(slices.Clip(targets), trackers.TensorBoard)
	}
	text, err := configs.YAML(conf)
	if err != nil {
		return nil, err
	}
	return trackers.Open(targets, trackers.Run{Dir: dir, Name: conf.Name, Method: conf.Method, Seed: conf.Seed,
		Config: text, Digest: b.DataDigest()}, m.Warn)
}

// writeConfig keeps the resolved configuration in the run folder.
func writeConfig(dir string, conf experiment.Config) error {
	text, err := configs.YAML(conf)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, results.ConfigFile), atomicfile.Bytes(text))
}

// writeInfo keeps what a run is about in a file of its folder.
func writeInfo(dir, name string, v any) error {
	return atomicfile.Write(filepath.Join(dir, name), atomicfile.JSON(v, ""))
}

// asUsage marks what a wrong configuration caused, and leaves failures of the machine alone.
func asUsage(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) || errors.Is(err, context.Canceled) {
		return err
	}
	return usageError{err}
}
