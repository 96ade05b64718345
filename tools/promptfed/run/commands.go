package run

import (
	"github.com/spf13/cobra"

	"promptfed/tools/promptfed/cli"
)

// Commands returns the commands of the group.
func Commands(o cli.Outputs, m cli.Machines) []*cobra.Command {
	return []*cobra.Command{initCommand(), runCommand(o, m), sweepCommand(o, m), launchCommand(o, m), traceCommand()}
}
