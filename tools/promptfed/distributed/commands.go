package distributed

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"promptfed/federation/experiment"
	"promptfed/tools/promptfed/cli"
)

// Machines returns the commands of the group and the connections of run and launch to other machines.
func Machines(o cli.Outputs) cli.Machines {
	return cli.Machines{
		Commands:    []*cobra.Command{serveCommand(o), joinCommand(), statusCommand(), certsCommand(), workCommand()},
		OpenCluster: openCluster,
		Work: func(ctx context.Context, url string, q cli.QueueOptions, idle time.Duration,
			here experiment.Config) error {
			return work(ctx, url, workOptions{QueueOptions: q, log: "text", idle: idle, here: &here})
		},
	}
}
