package distributed

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"promptfed/federation/transport/natsserver"
	"promptfed/tools/promptfed/cli"
)

func natsConfigCommand() *cobra.Command {
	var run, listen, certs, operator string
	var clients int
	c := &cobra.Command{Use: "nats-config --clients N --tls DIR [--operator DIR] [--run NAME] [--listen HOST:PORT]",
		Args: cobra.NoArgs,
		Short: "write a configuration for nats-server with an account for the server and each client of a run (serve " +
			"--nats)"}
	l := c.Flags()
	l.IntVar(&clients, "clients", 0, "number of clients")
	l.StringVar(&certs, "tls", "", "folder made by promptfed certs, as nats-server finds it")
	l.StringVar(&operator, "operator", "", "folder to write accounts signed by an operator (JWT) and credentials of "+
		"all users (--creds) to; without it, users are identified by their certificates and the configuration is "+
		"printed")
	l.StringVar(&run, "run", "default", "name of the run, the same as of server and clients")
	l.StringVar(&listen, "listen", "0.0.0.0:4222", "HOST:PORT of nats-server")
	c.RunE = func(*cobra.Command, []string) error {
		if clients < 1 || certs == "" {
			return cli.Needed("nats-config", "--clients N and --tls DIR")
		}
		dir, err := filepath.Abs(certs)
		if err == nil && operator == "" {
			err = natsserver.WriteConfig(os.Stdout, run, listen, dir, clients)
		} else if err == nil {
			err = natsserver.WriteOperator(operator, run, listen, dir, clients)
		}
		if err != nil {
			return cli.Usagef("nats-config: %w", err)
		}
		if operator != "" {
			fmt.Printf("start nats-server -c %s; server.creds is for the server, client-K.creds for client K, "+
				"status.creds for promptfed status; keep %s safe, it signs new ones\n",
				filepath.Join(operator, "nats.conf"), filepath.Join(operator, "keys"))
		}
		return nil
	}
	return c
}
