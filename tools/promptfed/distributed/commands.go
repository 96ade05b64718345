package distributed

import (
	"github.com/spf13/cobra"

	"promptfed/tools/promptfed/cli"
)

// Commands returns the commands of the group.
func Commands(o cli.Outputs) []*cobra.Command {
	return []*cobra.Command{serveCommand(o), joinCommand(), statusCommand(), certsCommand(),
		workCommand(), natsConfigCommand()}
}

// natsConfigCommand refuses a command of earlier releases.
func natsConfigCommand() *cobra.Command {
	return &cobra.Command{Use: "nats-config", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return cli.Usagef("nats-config: serve uses no NATS server any more; clients connect to serve --listen " +
				"HOST:PORT, and certificates (promptfed certs) say who they are")
		}}
}
