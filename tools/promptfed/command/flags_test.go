package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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
