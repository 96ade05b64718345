package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"promptfed/tools/promptfed/cli"
)

// Short flags and --set change the configuration in the order of the command line.
func TestShortFlags(t *testing.T) {
	for line, want := range map[string]string{
		"--rounds 2 --set seed=3 --lr 0.1 --set seed=4 --clients 5": "train.rounds=2 seed=3 train.lr=0.1 seed=4 " +
			"partition.clients=5",
		"--set seed=3 --method coop":              "seed=3 method=coop",
		"--method coop --method promptfl":         "method=coop method=promptfl",
		"--clients 5 --set partition.clients=6":   "partition.clients=5 partition.clients=6",
		"--set options.list=[1,2] --set name=a,b": "options.list=[1,2] name=a,b",
	} {
		f := flags{outputs: cli.Outputs{}}
		c := &cobra.Command{}
		f.add(c)
		if err := c.ParseFlags(strings.Fields(line)); err != nil || !slices.Equal(f.sets, strings.Fields(want)) {
			t.Errorf("%s: %q, %v; want %s", line, f.sets, err, want)
		}
	}
}
