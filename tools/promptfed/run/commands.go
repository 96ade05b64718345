package run

import (
	"github.com/spf13/cobra"

	"promptfed/tools/promptfed/cli"
)

// Commands returns the commands of the group.
func Commands(o cli.Outputs) []*cobra.Command {
	return []*cobra.Command{initCommand(), runCommand(o), sweepCommand(o), launchCommand(o), traceCommand(),
		programsCommand()}
}
