package inspect

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/experiment"
	"promptfed/models/bundle"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/lab/bench"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	bench.Options
	backbone, file string
	experiment     bool
	methods        bool
	features       bool
	image          string
	memory         float64
	only           []string
	against        string
	clients        []int
	rounds         int
	set            []string
}

// measurement is the result of bench.
type measurement interface {
	Table() string
	Missed() []bench.Target
}

func benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{Use: "bench", Args: cli.Exactly(0),
		Short: "measure the speed of a training step against its unoptimised form and this machine's matrix " +
			"products, or of experiments"}
	c.Flags().BoolVar(&f.Quick, "quick", false, "fewer repetitions; with --experiment, a tiny backbone")
	c.Flags().StringSliceVar(&f.Classes, "classes", nil, "class lists: cifar10, cifar100, thousand (default cifar10 "+
		"and cifar100)")
	c.Flags().IntSliceVar(&f.Threads, "threads", nil, "numbers of threads (default 1 and one per core); --methods "+
		"and --features use the first (default one per core)")
	c.Flags().StringVar(&f.backbone, "backbone", "", "bundle to measure (default: ViT-B/16's text tower with random "+
		"weights)")
	c.Flags().BoolVar(&f.experiment, "experiment", false, "measure rounds of Table S5's protocol (FedAPPR) instead, "+
		"and the overhead of 1,000 clients")
	c.Flags().BoolVar(&f.methods, "methods", false, "measure one local step of a client with every method and "+
		"wrapper instead")
	c.Flags().Float64Var(&f.memory, "memory-gb", 0, "train.memory_gb for --methods (default 4)")
	c.Flags().BoolVar(&f.features, "features", false, "measure images per second through full-size image towers "+
		"instead")
	c.Flags().StringSliceVar(&f.only, "only", nil, "methods for --methods (default all), or the one for --experiment "+
		"(default promptfl)")
	c.Flags().StringVar(&f.image, "image-tower", "vit-b32", "image tower for --methods: rn50, rn101, vit-b32 or "+
		"vit-b16")
	c.Flags().IntVar(&f.rounds, "rounds", 3, "rounds for --experiment, after a first one that compiles")
	c.Flags().StringVar(&f.against, "against", "", "Python with PyTorch, such as python3: compare with the step "+
		"written by hand in PyTorch (needs a source checkout)")
	c.Flags().IntSliceVar(&f.clients, "clients", nil, "measure the steps of this many clients in one call, such as "+
		"1,8,32 (runtime.batch_clients)")
	c.Flags().StringArrayVar(&f.set, "set", nil, "change a runtime key, as in runtime.prepack=false; for threads use "+
		"--threads")
	c.Flags().StringVar(&f.file, "json", "", "also write the results to a JSON file")
	c.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return c
}

func (f benchFlags) run(cmd *cobra.Command) error {
	conf, err := cli.RuntimeOnly(f.set)
	if err != nil {
		return err
	}
	if f.backbone != "" {
		if f.Backbone, err = bundle.Find(f.backbone); err != nil {
			return err
		}
	}
	conf.Name = "bench"
	d := progress.New(conf)
	defer d.Close()
	if err := cli.ChooseProvider(&conf, d); err != nil {
		return err
	}
	if !f.experiment {
		conf.Runtime.Workers = max(1, conf.Runtime.Workers)
	}
	f.Session, f.Progress = conf.Runtime.Session(), d.Steps
	r, err := f.measure(cmd, conf)
	d.Close()
	if err != nil {
		return err
	}
	fmt.Print(r.Table())
	for _, t := range r.Missed() {
		fmt.Printf("missed: %s is %.3g, expected %.3g\n", t.What, t.Got, t.Want)
	}
	if f.file == "" {
		return nil
	}
	return atomicfile.Write(f.file, atomicfile.JSON(r, "  "))
}

// threads returns the first value of --threads, or 0.
func (f benchFlags) threads() int {
	if len(f.Threads) == 0 {
		return 0
	}
	return f.Threads[0]
}

func (f benchFlags) measure(cmd *cobra.Command, conf experiment.Config) (measurement, error) {
	if f.against != "" {
		return bench.ComparePyTorch(cmd.Context(), f.Options, f.against)
	}
	if len(f.clients) > 0 {
		return bench.Clients(cmd.Context(), f.Options, f.clients)
	}
	if f.methods {
		o := bench.MethodsOptions{Quick: f.Quick, Only: f.only, Image: f.image, Session: f.Session,
			Memory: int(f.memory * (1 << 30)), Workers: conf.Runtime.Workers, Threads: f.threads(),
			Progress: f.Progress}
		return bench.Methods(cmd.Context(), o)
	}
	if f.features {
		return bench.Features(cmd.Context(), bench.FeaturesOptions{Quick: f.Quick, Threads: f.threads(),
			Session: f.Session, Progress: f.Progress})
	}
	if f.experiment {
		if len(f.only) > 1 {
			return nil, cli.Usagef("--experiment runs one method, not --only %s", strings.Join(f.only, ","))
		}
		return bench.Experiment(cmd.Context(), bench.ExperimentOptions{Quick: f.Quick, Method: strings.Join(f.only, ""),
			Rounds: f.rounds, Workers: conf.Runtime.Workers, Session: f.Session, Progress: f.Progress})
	}
	return bench.Run(cmd.Context(), f.Options)
}
