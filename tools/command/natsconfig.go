package command

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"promptfed/federation/transport"
)

func natsConfigCommand() *cobra.Command {
	var run, listen, certs string
	var clients int
	c := &cobra.Command{Use: "nats-config --clients N --tls DIR [--run NAME] [--listen HOST:PORT]", Args: cobra.NoArgs,
		Short: "a configuration for nats-server with the users and permissions of a run (serve --nats)"}
	l := c.Flags()
	l.IntVar(&clients, "clients", 0, "how many clients there are")
	l.StringVar(&certs, "tls", "", "folder that promptfed certs made, as nats-server finds it")
	l.StringVar(&run, "run", "default", "name of the run, as server and clients give it")
	l.StringVar(&listen, "listen", "0.0.0.0:4222", "HOST:PORT of nats-server")
	c.RunE = func(*cobra.Command, []string) error {
		if clients < 1 || certs == "" {
			return needed("nats-config", "--clients N and --tls DIR")
		}
		dir, err := filepath.Abs(certs)
		if err == nil {
			err = transport.NATSConfig(os.Stdout, run, listen, dir, clients)
		}
		if err != nil {
			return usageError{fmt.Errorf("nats-config: %w", err)}
		}
		return nil
	}
	return c
}
