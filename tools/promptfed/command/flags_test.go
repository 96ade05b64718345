package command

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"promptfed/tools/promptfed/cli"
)

// walk calls f for every command that users see.
func walk(c *cobra.Command, f func(*cobra.Command)) {
	if c.Hidden {
		return
	}
	f(c)
	for _, sub := range c.Commands() {
		walk(sub, f)
	}
}

// meanings are the flags whose help differs between commands, with what it means in all of them.
var meanings = map[string]string{
	"client":      "number of a client, from 0",
	"clients":     "number of clients",
	"config":      "configuration of this machine",
	"force":       "replace what is there",
	"idle":        "how long to wait for work",
	"insecure-dp": "noise of differential privacy from the run's seed",
	"jobs":        "how much is done at a time",
	"largest":     "most bytes of tensors that are accepted",
	"listen":      "HOST:PORT to serve at",
	"method":      "method to train",
	"metric":      "metric to show",
	"out":         "file or folder to write",
	"resume":      "continue after the last finished round",
	"rounds":      "number of rounds",
	"set":         "change a key of the configuration",
	"tls":         "folder made by promptfed certs",
	"token":       "the server's secret",
	"yes":         "do what is shown, without being asked",
}

// A flag name has one type and one meaning in all commands: one help text, or one line of the table above.
func TestFlagsMeanOneThing(t *testing.T) {
	kinds, helps := map[string]map[string][]string{}, map[string]map[string]bool{}
	walk(Root(), func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if kinds[f.Name] == nil {
				kinds[f.Name], helps[f.Name] = map[string][]string{}, map[string]bool{}
			}
			kinds[f.Name][f.Value.Type()] = append(kinds[f.Name][f.Value.Type()], c.CommandPath())
			helps[f.Name][f.Usage] = true
		})
	})
	for name, set := range kinds {
		if len(set) > 1 {
			t.Errorf("--%s has several types: %v", name, set)
		}
		if _, ok := meanings[name]; ok != (len(helps[name]) > 1) {
			t.Errorf("--%s has %d help texts, in the table: %v: %s", name, len(helps[name]), ok,
				strings.Join(slices.Sorted(maps.Keys(helps[name])), " / "))
		}
	}
	for name := range meanings {
		if kinds[name] == nil {
			t.Errorf("no command has --%s", name)
		}
	}
}

// silent are the commands without a result: servers, and those that print text for a shell or a person.
var silent = []string{"ui", "serve", "join", "work", "help", "completion bash", "completion zsh", "completion fish",
	"completion powershell"}

// Every command that prints a result has --json, and states what it prints.
func TestJSONFlag(t *testing.T) {
	r := Root()
	r.InitDefaultCompletionCmd()
	r.InitDefaultHelpCmd()
	walk(r, func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "promptfed ")
		if c.HasAvailableSubCommands() || path == "promptfed" {
			return
		}
		if shapes := cli.Shapes(c); (len(shapes) > 0) == slices.Contains(silent, path) {
			t.Errorf("%s has %d shapes of JSON", path, len(shapes))
		}
	})
}

// The earlier --json FILE is refused with the redirection that replaces it.
func TestJSONTakesNoFile(t *testing.T) {
	for line, want := range map[string]string{"bench --json x.json": "--json > x.json",
		"partition mine.yaml --json parts.json": "--json > parts.json",
		"bench --json=x.json":                   "--json > x.json"} {
		c, args, err := Root().Find(strings.Fields(line))
		if err == nil {
			if err = c.ParseFlags(args); err == nil {
				err = c.Args(c, c.Flags().Args())
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// An unknown flag is wrong usage, and so is any other error of flags.
func TestFlagError(t *testing.T) {
	r := Root()
	if err := flagError(r, r.Flags().Parse([]string{"--creds"})); !cli.IsUsage(err) ||
		!strings.Contains(err.Error(), "unknown flag") {
		t.Error(err)
	}
	if err := flagError(r, errors.New("x")); !cli.IsUsage(err) || err.Error() != "x" {
		t.Error(err)
	}
}
