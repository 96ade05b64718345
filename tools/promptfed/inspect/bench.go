package inspect

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/models/bundle"
	"promptfed/runtime/ort"
	"promptfed/tools/lab/bench"
	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/progress"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	bench.Options
	backbone                      string
	experiment, methods, features bool
	start, svd                    bool
	memory                        float64
	set                           []string
	result                        *cli.Printer
}

func benchCommand() *cobra.Command {
	var flags benchFlags
	command := &cobra.Command{Use: "bench", Args: cli.Exactly(0),
		Short: "measure the speed of a training step against its unoptimised form and this machine's matrix " +
			"products, or of experiments"}
	flagSet := command.Flags()
	flagSet.BoolVar(&flags.Quick, "quick", false, "fewer repetitions; with --experiment, a tiny backbone")
	flagSet.StringSliceVar(&flags.Classes, "class-lists", nil,
		"class lists: cifar10, cifar100, thousand (default "+
			"cifar10 and cifar100); --methods and --experiment use the first")

	flagSet.IntSliceVar(&flags.Threads, "threads", nil,
		"numbers of threads (default 1 and one per core); --methods "+
			"and --features use the first (default one per core)")
	flagSet.StringVar(&flags.backbone, "backbone", "",
		"bundle to measure (default: ViT-B/16's text tower with random weights)")
	flagSet.BoolVar(&flags.experiment, "experiment", false,
		"measure rounds of Table S5's protocol (FedAPPR) instead, and the overhead of up to 100,000 clients")

	flagSet.BoolVar(&flags.methods, "methods", false,
		"measure one local step of a client with every method and wrapper instead")
	flagSet.Float64Var(&flags.memory, "memory-gb", 0,
		"train.memory_gb for --methods and --experiment (default 4)")
	flagSet.BoolVar(&flags.features, "features", false,
		"measure images per second through full-size image towers instead, on a GPU also from JPEG files")

	flagSet.BoolVar(&flags.svd, "svd", false, "measure the decomposition of a shared prompt, the projection "+
		"and the aggregation instead, as FedPHA's Table 3 and SDFed's Table 5 do")
	flagSet.BoolVar(&flags.start, "start", false,
		"start the program with a tiny and a full-size backbone instead, and "+
			"measure the seconds to the first training step")
	flagSet.StringSliceVar(&flags.Only, "only", nil,
		"methods for --methods (default all), the one for --experiment "+
			"(default promptfl), or parts of --against pytorch on a GPU: text, image, features (default all)")

	flagSet.StringVar(&flags.Image, "image-tower", "",
		"image tower for --methods (default vit-b32) or --experiment "+
			"(default Table S5's four): rn50, rn101, vit-b32, vit-b16 or vit-l14")
	flagSet.IntVar(&flags.Rounds, "rounds", 0,
		"rounds after a first one that compiles: of --experiment (default 3), or "+
			"of --against flower and pfl (default 1500 on a tiny text tower, 20 on ViT-B/16's)")
	flagSet.StringVar(&flags.Against, "against", "",
		"compare with an opponent in Python (needs a source checkout): "+
			"pytorch, steps written by hand, on a GPU also features and three precisions; or a simulation in flower "+
			"or pfl (pfl-research)")

	flagSet.StringVar(&flags.Python, "python", "python3", "Python interpreter for --against, with the "+
		"opponent's packages")
	flagSet.IntSliceVar(&flags.Clients, "batch-clients", nil,
		"measure the steps of this many clients in one call, such as 1,8,32 (runtime.batch_clients)")
	flagSet.StringArrayVar(&flags.set, "set", nil,
		"change a runtime key, as in runtime.prepack=false; for threads use --threads")
	flags.result = cli.AddJSON(command, bench.Report{})
	command.RunE = func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) }
	return command
}

func (f benchFlags) run(cmd *cobra.Command) error {
	kinds := []string{"against", "batch-clients", "experiment", "features", "methods", "start", "svd"}
	kinds = slices.DeleteFunc(kinds, func(name string) bool { return !cmd.Flags().Changed(name) })
	if len(kinds) > 1 {
		return cli.Usagef("--%s are different measurements; choose one of them", strings.Join(kinds, " and --"))
	}

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
	display := progress.New(conf)
	defer display.Close()
	if err := cli.ChooseProvider(&conf, display); err != nil {
		return err
	}

	if !f.experiment {
		conf.Runtime.Workers = max(1, conf.Runtime.Workers)
	}

	f.Session, f.Workers, f.Progress = conf.Runtime.Session(), conf.Runtime.Workers, display.Steps
	f.Memory = int(f.memory * (1 << 30))
	r, err := f.measure(cmd.Context())
	display.Close()
	if err != nil {
		return err
	}

	r.Graphs = ort.Cached()
	return f.result.Print(r, r.Text())
}

func (f benchFlags) measure(ctx context.Context) (report bench.Report, err error) {
	what := bench.Run
	switch {
	case len(f.Only) > 0 && f.Against != "pytorch" && !f.methods && !f.experiment:
		return report, cli.Usagef("--only %s has no effect: add --methods, --experiment or --against pytorch",
			strings.Join(f.Only, ","))
	case f.Against == "pytorch":
		what = bench.ComparePyTorch
	case f.Against == "flower", f.Against == "pfl":
		what = bench.CompareSimulator
	case f.Against != "":
		return report, cli.Usagef("--against %s: the opponent is pytorch, flower or pfl; name the Python "+
			"interpreter with --python, as in --against pytorch --python %s", f.Against, f.Against)
	case len(f.Clients) > 0:
		what = bench.Clients
	case f.start:
		if f.Program, err = os.Executable(); err != nil {
			return report, err
		}
		what = bench.Start
	case f.methods:
		what = bench.Methods
	case f.svd:
		what = bench.SVD
	case f.features:
		what = bench.Features
	case f.experiment && len(f.Only) > 1:
		return report, cli.Usagef("--experiment runs one method, not --only %s", strings.Join(f.Only, ","))
	case f.experiment:
		what = bench.Experiment
	}

	return bench.Measure(ctx, f.Options, what)
}
