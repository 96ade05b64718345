package distributed

import (
	"github.com/spf13/cobra"

	"promptfed/tools/promptfed/cli"
)

// Commands returns the commands of the group.
func Commands(o cli.Outputs) []*cobra.Command {
	return []*cobra.Command{serveCommand(o), joinCommand(), statusCommand(), certsCommand(), workCommand()}
}
