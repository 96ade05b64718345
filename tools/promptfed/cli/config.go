package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/progress"
	"promptfed/tools/promptfed/runfolder"
)

// RunsFolder is the default folder of run folders.
const RunsFolder = "runs"

// ComparisonFolder is the default folder of a report about several runs.
const ComparisonFolder = "runs/comparison"

// ForceHelp is the help text of --force.
const ForceHelp = "start over in a folder that holds a run or a sweep, whose files are removed"

// SetHelp is the help text of --set.
const SetHelp = "change a key of the configuration, as in train.lr=0.01"

// Load reads and checks a configuration. An error is a usage error.
func Load(path string, sets []string) (configs.Loaded, error) {
	return LoadChecked(path, sets, configs.Loaded.Check)
}

// LoadChecked reads a configuration and checks it with check. An error is a usage error.
func LoadChecked(path string, sets []string, check func(configs.Loaded) error) (configs.Loaded, error) {
	loaded, err := configs.Open(path, sets)
	if err == nil {
		err = check(loaded)
	}

	if err != nil {
		return loaded, Usage(err)
	}

	for _, n := range loaded.Notes {
		fmt.Fprintln(os.Stderr, "promptfed: note:", n)
	}

	return loaded, nil
}

// Configured returns a command whose one argument is a configuration, with the flag --set, and with --json for results
// of the type of usual or of other shapes. The command calls do with the configuration, a display and its printer, and
// closes the display.
func Configured(use, short string, do func(cmd *cobra.Command, conf experiment.Config, d *progress.Display,
	result *Printer) error, usual any, others ...Shape) *cobra.Command {
	var sets []string
	command := &cobra.Command{Use: use + " CONFIG [--set key=value]", Args: Exactly(1), Short: short}
	result := AddJSON(command, usual, others...)
	command.Flags().StringArrayVar(&sets, "set", nil, SetHelp)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		conf, err := Load(args[0], sets)
		if err != nil {
			return err
		}
		d := progress.New(conf.Config)
		defer d.Close()
		return conf.WithOrigin(do(cmd, conf.Config, d, result))
	}

	return command
}

// Prepare opens an experiment and computes its features.
func Prepare(ctx context.Context, conf experiment.Config, m progress.Monitor) (*experiment.Federation, error) {
	t, err := Open(ctx, conf, m)
	if err != nil {
		return nil, err
	}
	return Federate(ctx, t, m)
}

// Open opens the task of an experiment.
func Open(ctx context.Context, conf experiment.Config, m progress.Monitor) (*experiment.Task, error) {
	t, err := experiment.Open(ctx, conf, m.Work)
	if err != nil {
		return nil, AsUsage(err)
	}
	m.Opened(t)
	return t, nil
}

// Federate computes the features of a task.
func Federate(ctx context.Context, t *experiment.Task, m progress.Monitor) (*experiment.Federation, error) {
	defer m.Features(t)()
	f, err := experiment.Federate(ctx, t, m.Work)
	if err == nil && f.Rates.Long() {
		m.Note(f.Rates.String())
	}
	return f, err
}

// OnlyRuntime refuses changes of keys that are not below runtime.
func OnlyRuntime(sets []string) error {
	for _, s := range sets {
		if !strings.HasPrefix(s, "runtime.") {
			return Usagef("--set %s: only keys under runtime can be changed here", s)
		}
	}
	return nil
}

// RuntimeOnly returns the default configuration with changed runtime keys.
func RuntimeOnly(sets []string) (experiment.Config, error) {
	if err := OnlyRuntime(sets); err != nil {
		return experiment.Config{}, err
	}

	l, err := configs.OpenText("", nil, sets)
	if err == nil {
		err = l.CheckWithoutData()
	}

	if err != nil {
		return l.Config, Usage(err)
	}

	return l.Config, nil
}

// ChooseProvider chooses the provider of a command that opens no experiment, and stores the choice in conf.
func ChooseProvider(conf *experiment.Config, d *progress.Display) error {
	why, err := conf.Runtime.ChooseProvider()
	d.Fallback(why)
	return err
}

// WriteConfig writes the resolved configuration into the run folder.
func WriteConfig(dir string, conf experiment.Config) error {
	text, err := configs.YAML(conf)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, runfolder.ConfigFile), atomicfile.Bytes(text))
}

// WriteInfo writes a value as JSON into a file of the run folder.
func WriteInfo(dir, name string, v any) error {
	return atomicfile.Write(filepath.Join(dir, name), atomicfile.JSON(v, ""))
}

// WriteNew writes a text to a file, and with force also over an existing one.
func WriteNew(path string, text []byte, force bool) error {
	if _, err := os.Stat(path); err == nil && !force {
		return Usagef("%s exists already; use --force to overwrite it, or another --out", path)
	}
	return atomicfile.Write(path, atomicfile.Bytes(text))
}
