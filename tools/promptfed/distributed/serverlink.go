package distributed

import (
	"github.com/spf13/cobra"

	netclient "promptfed/federation/net/client"
	"promptfed/tools/promptfed/cli"
)

// oneURL checks that the only argument of a command is the address of a server.
func oneURL(c *cobra.Command, args []string) error {
	err := cli.Exactly(1)(c, args)
	if err == nil {
		if err = netclient.CheckURL(args[0]); err != nil {
			err = cli.Usage(err)
		}
	}
	return err
}
