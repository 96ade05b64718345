package inspect

import "github.com/spf13/cobra"

// Commands returns the commands of the group.
func Commands() []*cobra.Command {
	return []*cobra.Command{importCommand(), listCommand(), pullCommand(), convertCommand(), bundleCommand(),
		inspectCommand(), checkCommand(), gradCommand(), partitionCommand(), featuresCommand(), pretrainCommand(),
		benchCommand(), doctorCommand()}
}
