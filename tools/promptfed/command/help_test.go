package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command is in a group and has at least two examples, whose flags, keys and numbers of arguments it accepts;
// every name in the tables is that of a command.
func TestExamples(t *testing.T) {
	shown := 0
	walk(Root(), func(c *cobra.Command) {
		if c.Parent() != nil && c.Parent().Parent() == nil && c.GroupID == "" {
			t.Errorf("%s is in no group", c.CommandPath())
		}
		if c.HasSubCommands() {
			return
		}
		path := strings.TrimPrefix(c.CommandPath(), "promptfed ")
		lines := strings.Split(strings.TrimSpace(c.Example), "\n")
		if shown += len(lines); len(lines) < 2 {
			t.Errorf("%s has no two examples", path)
		}
		for _, line := range lines {
			_, line, _ = strings.Cut(line, "promptfed ") // behind srun
			line, _, _ = strings.Cut(line, " | ")
			line, _, _ = strings.Cut(line, " > ")
			fresh := Root()
			at, args, err := fresh.Find(strings.Fields(line))
			if err == nil && at.CommandPath() != c.CommandPath() {
				t.Errorf("%q is an example of %s", line, at.CommandPath())
			}
			if err == nil {
				err = at.ParseFlags(args)
			}
			if err == nil && at.Args != nil {
				err = at.Args(at, at.Flags().Args())
			}
			if set, e := at.Flags().GetStringArray("set"); e == nil {
				keys, _ := keysFor(at.Name())(at, nil, "")
				for _, assignment := range set {
					if key, _, _ := strings.Cut(assignment, "="); !slices.Contains(keys, key+"=") {
						t.Errorf("%s: there is no key %s", line, key)
					}
				}
			}
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	})
	for _, name := range []string{"bench", "evaluate", "export", "predict"} { // refuse all other keys
		keys, _ := keysFor(name)(nil, nil, "")
		if i := slices.IndexFunc(keys, func(key string) bool { return !strings.HasPrefix(key, "runtime.") }); i >= 0 ||
			len(keys) == 0 {
			t.Errorf("%s completes %q", name, keys)
		}
	}
	if all := strings.Count(examples, "\n"); shown != all {
		t.Errorf("%d of %d examples are of a command", shown, all)
	}
	for _, g := range groups {
		for _, name := range strings.Fields(g.commands) {
			if c, _, err := Root().Find([]string{name}); name != "help" && name != "completion" &&
				(err != nil || c.Name() != name) {
				t.Errorf("there is no command %s", name)
			}
		}
	}
}
