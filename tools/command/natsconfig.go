package command

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"promptfed/federation/transport/natsserver"
)

func natsConfigCommand() *cobra.Command {
	var run, listen, certs, operator string
	var clients int
	c := &cobra.Command{Use: "nats-config --clients N --tls DIR [--operator DIR] [--run NAME] [--listen HOST:PORT]",
		Args:  cobra.NoArgs,
		Short: "a configuration for nats-server with an account for the server and each client of a run (serve --nats)"}
	l := c.Flags()
	l.IntVar(&clients, "clients", 0, "how many clients there are")
	l.StringVar(&certs, "tls", "", "folder that promptfed certs made, as nats-server finds it")
	l.StringVar(&operator, "operator", "", "folder for accounts signed by an operator (JWT) and credentials for all "+
		"users (--creds); without it users are known by their certificates, and the configuration is printed")
	l.StringVar(&run, "run", "default", "name of the run, as server and clients give it")
	l.StringVar(&listen, "listen", "0.0.0.0:4222", "HOST:PORT of nats-server")
	c.RunE = func(*cobra.Command, []string) error {
		if clients < 1 || certs == "" {
			return needed("nats-config", "--clients N and --tls DIR")
		}
		dir, err := filepath.Abs(certs)
		if err == nil && operator == "" {
			err = natsserver.WriteConfig(os.Stdout, run, listen, dir, clients)
		} else if err == nil {
			err = natsserver.WriteOperator(operator, run, listen, dir, clients)
		}
		if err != nil {
			return usageError{fmt.Errorf("nats-config: %w", err)}
		}
		if operator != "" {
			fmt.Printf("nats-server -c %s: give the server server.creds, client K client-K.creds, whoever asks for "+
				"the status status.creds; keep %s apart, it makes more of them\n",
				filepath.Join(operator, "nats.conf"), filepath.Join(operator, "keys"))
		}
		return nil
	}
	return c
}
