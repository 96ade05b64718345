package report

import "github.com/spf13/cobra"

// Commands returns the commands of the group.
func Commands() []*cobra.Command {
	return []*cobra.Command{reportCommand(), runsCommand(), uiCommand(), predictCommand(), exportCommand(),
		termsCommand(), evaluateCommand()}
}
