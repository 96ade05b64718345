package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/configs"
	"promptfed/federation/experiment"
	"promptfed/tools/promptfed/progress"
)

// configured makes a command whose one argument is a configuration, with --set; do gets the configuration and a display
// that is closed afterwards.
func configured(use, short string, do func(cmd *cobra.Command, conf experiment.Config,
	d *progress.Display) error) *cobra.Command {
	var sets []string
	c := &cobra.Command{Use: use + " CONFIG [--set key=value]", Args: exactly(1), Short: short}
	c.Flags().StringArrayVar(&sets, "set", nil, "change a key of the configuration, as in train.lr=0.01")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		conf, err := load(args[0], sets)
		if err != nil {
			return err
		}
		d := progress.New(conf.Config)
		defer d.Close()
		return conf.Blame(do(cmd, conf.Config, d))
	}
	return c
}

// prepare opens an experiment and computes its features.
func prepare(ctx context.Context, conf experiment.Config, m progress.Monitor) (*experiment.Built, error) {
	b, err := open(ctx, conf, m)
	if err != nil {
		return nil, err
	}
	return b, computeFeatures(ctx, b, m)
}

// open opens an experiment: its data, backbones and provider.
func open(ctx context.Context, conf experiment.Config, m progress.Monitor) (*experiment.Built, error) {
	b, err := experiment.Open(ctx, conf, m.Work)
	if err != nil {
		return nil, asUsage(err)
	}
	if err := b.ChooseProvider(); err != nil {
		return nil, err
	}
	m.Opened(b)
	m.Fallback(b.Fallback)
	return b, nil
}

// computeFeatures computes what the clients of an opened experiment need.
func computeFeatures(ctx context.Context, b *experiment.Built, m progress.Monitor) error {
	defer m.Features(b)()
	return b.Features(ctx, m.Work)
}

// onlyRuntime refuses keys that a command cannot change.
func onlyRuntime(sets []string) error {
	for _, s := range sets {
		if !strings.HasPrefix(s, "runtime.") {
			return usageError{fmt.Errorf("--set %s: only keys under runtime can be changed here", s)}
		}
	}
	return nil
}

// bare is the default configuration with other runtime keys.
func bare(sets []string) (experiment.Config, error) {
	if err := onlyRuntime(sets); err != nil {
		return experiment.Config{}, err
	}
	l, err := configs.OpenText("", nil, sets)
	if err == nil {
		err = l.CheckWithoutData()
	}
	if err != nil {
		return l.Config, usageError{err}
	}
	return l.Config, nil
}

// chooseProvider takes the provider where no experiment is opened, and leaves it in the configuration.
func chooseProvider(conf *experiment.Config, d *progress.Display) error {
	why, err := conf.Runtime.ChooseProvider()
	d.Fallback(why)
	return err
}

// needed is the error of a flag that must be given.
func needed(command, flags string) error {
	return usageError{fmt.Errorf("%s needs %s", command, flags)}
}
