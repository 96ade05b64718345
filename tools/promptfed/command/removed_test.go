package command

import (
	"errors"
	"strings"
	"testing"

	"promptfed/tools/promptfed/cli"
	"promptfed/tools/promptfed/distributed"
)

// A flag of an earlier release is refused with what to do instead, and no flag of this release is among them.
func TestRemovedFlags(t *testing.T) {
	commands := 0
	for _, c := range Root(distributed.Machines).Commands() {
		for name, instead := range removedFlags[c.Name()] {
			if c.Flags().Lookup(name) != nil {
				t.Errorf("%s has --%s", c.Name(), name)
			}
			for _, arg := range []string{"--" + name, "--" + name + "=x"} {
				err := flagError(c, c.Flags().Parse([]string{arg}))
				if !cli.IsUsage(err) || err.Error() != "--"+name+" was removed: "+instead {
					t.Errorf("%s %s: %v", c.Name(), arg, err)
				}
			}
		}
		if removedFlags[c.Name()] != nil {
			commands++
		}
	}
	if commands != len(removedFlags) {
		t.Errorf("only %d of %d are commands", commands, len(removedFlags))
	}
	r := Root(distributed.Machines)
	if err := flagError(r, r.Flags().Parse([]string{"--creds"})); !strings.Contains(err.Error(), "unknown flag") {
		t.Error(err)
	}
	if err := flagError(r, errors.New("x")); !cli.IsUsage(err) || err.Error() != "x" {
		t.Error(err)
	}
}
