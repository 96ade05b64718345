package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/federation/experiment/inference"
	"promptfed/runtime/convert"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/distributed"
	"promptfed/tools/promptfed/progress"
	"promptfed/tools/promptfed/quickstart"
	"promptfed/tools/promptfed/runfolder"
	"promptfed/tools/promptfed/signals"
)

// flags are the flags of run, sweep and launch.
type flags struct {
	sets, keep, log []string
	grid            []string
	out, images     string
	use             runfolder.Use
	smoke, quiet    bool
	seeds           seedList
	jobs            int
	array           configs.Part
	cluster         cli.ClusterFlags
	view            cli.View
	result          *cli.Printer
	outputs         cli.Outputs
}

// add adds the flags that the three commands share.
func (f *flags) add(command *cobra.Command) {
	flagSet := command.Flags()
	flagSet.BoolVar(&f.smoke, "smoke", false,
		"run the small form that the file's section smoke describes, which takes about a minute")
	flagSet.StringArrayVar(&f.sets, "set", nil, cli.SetHelp)
	for _, short := range []struct{ flag, key, kind, help string }{{"method", "method", "string", "train `METHOD`"},
		{"rounds", "train.rounds", "int", "train for `N` rounds"},
		{"lr", "train.lr", "float64", "train at the learning `RATE`"},
		{"clients", "partition.clients", "int", "split the images among `N` clients"},
		{"programs", "runtime.programs", "string", "compute with the graphs of `DIR`, from promptfed programs"}} {
		flagSet.Var(keyFlag{flagSet, short.key, short.kind}, short.flag, short.help+": --set "+short.key+"=...")
	}

	flagSet.BoolVar(&f.quiet, "quiet", false, "print results, warnings and errors only")
	flagSet.Var((*cli.NonEmpty)(&f.out), "out",
		"folder of the run or sweep (default runs/NAME); with several configurations, the folder above them")
	flagSet.Var(&f.seeds, "seeds",
		"run with every seed instead of the file's, as in 1,2,3 or 1-3; the table shows means "+
			"and standard deviations over seeds")
	flagSet.BoolVar(&f.use.Resume, "resume", false,
		"continue after the last finished round; a sweep tries failed cells again")
	flagSet.BoolVar(&f.use.Force, "force", false, cli.ForceHelp)
	flagSet.StringArrayVar(&f.log, "track", nil, f.outputs.TrackerHelp)
	f.view.AddFlags(command)
	f.result = cli.AddJSON(command, cli.Report{})
}

// keyFlag is a flag that sets one key of the configuration, which checks the value.
type keyFlag struct {
	flags     *pflag.FlagSet
	key, kind string
}

func (k keyFlag) String() string { return "" }

// Type returns the type of the flag's value.
func (k keyFlag) Type() string { return k.kind }

// Set adds a change of the key as --set does. A change written into the list itself would be lost at the first --set,
// which replaces the list.
func (k keyFlag) Set(value string) error { return k.flags.Set("set", k.key+"="+value) }

// check checks the flags and applies --quiet.
func (f *flags) check() error {
	progress.Quiet.Store(f.quiet)
	if err := f.outputs.CheckTrackers(f.log); err != nil {
		return cli.Usage(err)
	}
	return nil
}

func runCommand(o cli.Outputs) *cobra.Command {
	f := flags{outputs: o}
	c := &cobra.Command{
		Use: "run CONFIG...|--images FOLDER [--set key=value] [--seeds 1-3] [--smoke] [--cluster URL] [--out DIR] " +
			"[--resume] [--force]",
		Short: "run federated experiments; several are compared in one table; a file with a section sweep runs as a " +
			"sweep",
	}

	f.addRun(c)
	f.cluster.Add(c)
	c.RunE = func(cmd *cobra.Command, args []string) error { return f.start(cmd.Context(), args) }
	return c
}

// addRun adds the flags and the check of the arguments of run and launch.
func (f *flags) addRun(c *cobra.Command) {
	f.add(c)
	c.Flags().StringVar(&f.images, "images", "", "images to run on: a folder, a list or Parquet files; without "+
		"CONFIG, methods are compared on them, as in the file that promptfed init writes")
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 && f.images == "" {
			return cli.Usagef("%s needs a configuration, or --images FOLDER: %s", c.Name(), c.UseLine())
		}
		return nil
	}
}

// start runs the sweep or the single runs of the command line.
func (f *flags) start(ctx context.Context, args []string) error {
	if err := f.check(); err != nil {
		return err
	}

	sweep, err := f.sweep(args)
	if err != nil {
		return err
	}

	if sweep != nil {
		return runSweep(ctx, sweep, *f)
	}

	return f.run(ctx, args)
}

// sweep returns the sweep of the command line, or nil for single runs. For --images with configurations, it turns the
// images into changes of the configurations.
func (f *flags) sweep(args []string) (*configs.Sweep, error) {
	if f.images != "" && len(args) == 0 {
		if f.smoke {
			return nil, cli.Usagef("--smoke is for sweep files, not for --images")
		}
		p, err := plan(f.images, f.sets)
		if err != nil {
			return nil, err
		}
		f.sets = p.Changes
		return loadSweep("the configuration for "+f.images, p.Text, *f)
	}

	if f.images != "" {
		kind, err := quickstart.Kind(f.images)
		if err != nil {
			return nil, cli.Usage(err)
		}
		f.sets = append([]string{"data.set=" + kind, "data.root=" + strconv.Quote(f.images)}, f.sets...)
	}

	for _, path := range args {
		sweep, err := configs.HasSection(path, "sweep")
		if err != nil {
			return nil, cli.Usage(err)
		}
		if (sweep || f.smoke) && len(args) > 1 {
			return nil, cli.Usagef("%s is a sweep, or --smoke makes it one; run one sweep at a time", path)
		}
		if sweep || f.smoke {
			return loadSweep(path, nil, *f)
		}
	}

	return nil, nil
}

// plan chooses an experiment for images, and prints the detected layout and the partition.
func plan(images string, sets []string) (*quickstart.Plan, error) {
	p, err := quickstart.For(images, sets)
	if err != nil {
		return nil, cli.Usage(err)
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n%s: partition %s\n", p.Name, p.Found, p.Name, p.Parts)
	return p, nil
}

// run trains single runs, one after the other, and compares them.
func (f flags) run(ctx context.Context, args []string) error {
	var dirs, folders []string
	var confs []configs.Loaded
	for _, path := range args { // reads all files before the first run trains
		conf, err := cli.Load(path, f.sets)
		if err != nil {
			return err
		}
		dir := cmp.Or(f.out, filepath.Join(cli.RunsFolder, conf.Name))
		if f.out != "" && len(args) > 1 {
			dir = filepath.Join(f.out, conf.Name)
		}
		dirs = append(dirs, dir)
		seeded, below := withSeeds(conf, dir, f.seeds)
		confs, folders = append(confs, seeded...), append(folders, below...)
	}

	for i, folder := range folders {
		if slices.Contains(folders[:i], folder) {
			return cli.Usagef("two runs would use the folder %s; give the configurations different names", folder)
		}
		if err := runfolder.Check(folder, f.use); err != nil {
			return err
		}
	}

	others, err := distributed.OpenCluster(ctx, f.cluster)
	if err != nil {
		return err
	}
	defer others.Close()

	if f.use.Force || f.use.Resume {
		f.use.Changed = folders
	}

	folder := f.out
	switch {
	case len(dirs) == 1:
		folder = dirs[0]
	case f.out == "":
		folder = cli.ComparisonFolder
	}

	series := progress.NewSeries(convert.Slice(confs, func(l configs.Loaded) experiment.Config { return l.Config }))
	for i, conf := range confs {
		if f.use.Force {
			named := folders[i]
			if len(f.seeds) > 0 {
				named = filepath.Dir(named)
			}
			f.use.Replaced = runfolder.SeedsIn(named, folders...)
		}

		err := f.one(ctx, conf.Config, folders[i], others, series)
		if err == nil && folders[i] != folder { // the report below is that of a single run
			_, err = f.outputs.Report([]string{folders[i]}, folders[i])
		}
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("%s, seed %d: %w", conf.Name, conf.Seed, conf.WithOrigin(err))
		}
	}

	r, err := f.outputs.Report(dirs, folder)
	if err != nil {
		return err
	}

	return f.result.Print(r, r.Text(f.view)+fmt.Sprintf("written to %s; %s shows it\n", folder, r.Page))
}

// one trains in a run folder.
func (f flags) one(ctx context.Context, conf experiment.Config, dir string, others *distributed.Cluster,
	series *progress.Series) error {
	d := series.New(conf)
	defer d.Close()
	t := training{dir: dir, use: f.use, log: f.log, cluster: others, outputs: f.outputs}
	_, err := t.run(ctx, conf, d)
	if err != nil && ctx.Err() != nil {
		return cli.Stopped(ctx)
	}

	return err
}

// training holds the settings of a run besides its configuration.
type training struct {
	dir     string
	use     runfolder.Use
	outputs cli.Outputs
	log     []string             // names of trackers
	workers int                  // number of clients that train at a time; 0 for that of the configuration
	beside  bool                 // whether other runs share the processors
	cluster *distributed.Cluster // machines that train the clients; nil for this process
}

// run runs an experiment in its folder.
func (t training) run(ctx context.Context, conf experiment.Config, monitor progress.Monitor) (result *engine.Result,
	err error) {
	clock, dir, use := &runfolder.Clock{Start: time.Now()}, t.dir, t.use
	if err := runfolder.Check(dir, use); err != nil { // before long work
		return nil, err
	}

	if t.cluster != nil { // its workers train each client alone
		conf.Runtime.BatchClients = max(1, conf.Runtime.BatchClients)
	}

	task, err := cli.Open(ctx, conf, monitor)
	if err != nil {
		return nil, err
	}

	clock.Ended(runfolder.OpenedPart)
	id, err := task.Identity(ctx, monitor.Work)
	if err == nil {
		err = runfolder.CheckExperiment(dir, id, use)
	}

	if err != nil {
		return nil, err
	}

	federation, err := cli.Federate(ctx, task, monitor)
	if err != nil {
		return nil, err
	}
	defer federation.Close()

	clock.Ended(runfolder.FeaturesPart)
	release, err := runfolder.Claim(dir, use)
	if err != nil {
		return nil, err
	}
	defer release()

	resolved := task.Protocol.Config
	end, err := runfolder.Begin(ctx, dir, resolved, task, clock)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, end(err)) }()

	if err := errors.Join(cli.WriteConfig(dir, resolved), id.Write(dir), cli.WriteInfo(dir, runfolder.ClientsFile,
		task.Clients()), cli.WriteInfo(dir, runfolder.DataFile, task.Info)); err != nil {
		return nil, err
	}

	log, err := t.outputs.OpenTrackers(t.log, dir, task, monitor.Warn)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, log.Close(err)) }()

	set := federation.Settings()
	set.Dir, set.Resume, set.OnWarning = dir, use.Resume, monitor.Warn
	alive := runfolder.SignsOfLife(dir)
	set.OnTurn = func(instruction message.Instruction, client int) {
		if instruction.Kind == message.Train {
			clock.Ended(runfolder.TrainedPart)
		}
		alive()
		monitor.Turn(instruction, client)
	}

	if set.Workers = cmp.Or(t.workers, set.Workers); t.beside {
		set.Client.Session.Runs = 0
	}

	if t.cluster != nil {
		done, err := t.cluster.Spread(ctx, federation, &set)
		if err != nil {
			return nil, err
		}
		defer done()
	}

	clock.Ended(runfolder.FolderPart)
	monitor.Start(conf.Train.Rounds, len(federation.Experiment.Clients))
	ctx, finishRound, over := signals.FromContext(ctx).Begin(ctx)
	defer over()

	set.OnRound = func(r record.Record) {
		monitor.Round(r)
		log.Round(r)
		finishRound()
	}

	if result, err = engine.Run(ctx, federation.Experiment, set); err != nil {
		return nil, err
	}

	if conf.Eval.Embeddings > 0 {
		if err := inference.WriteEmbeddings(ctx, federation, dir, monitor.Work); err != nil {
			return nil, err
		}
	}

	return result, nil
}
