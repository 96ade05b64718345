package distributed

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
)

// certificate returns the identity of a user's certificate; without --tls an identity without a key.
func certificate(a cli.Access, user string) (certs.Identity, error) {
	if a.TLS == "" {
		return certs.Identity{}, nil
	}
	return authority.Identity(a.TLS, user)
}

// link returns the way to the server of a run for a user. Without --tls, state is the folder of the key; empty for a
// new key.
func link(a cli.Access, url, user, state string, log *slog.Logger) (*netclient.Link, error) {
	token, err := a.Token()
	if err != nil {
		return nil, err
	}

	who, err := certificate(a, user)
	if err == nil {
		who, err = who.WithKey(state)
	}

	return &netclient.Link{URL: url, Name: user, Identity: who, Token: token, Log: log}, err
}

// logger returns a log to standard error.
func logger(form string) (*slog.Logger, error) {
	switch form {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, nil)), nil
	}
	return nil, cli.Usagef("--log %q: expected text or json", form)
}

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

// connect returns the options of a connection of a user, who has the certificate of the same name.
func connect(options cli.QueueOptions, user string) ([]nats.Option, error) {
	token, err := options.Token()
	if err != nil {
		return nil, err
	}

	out := []nats.Option{nats.UserInfo(user, token)}
	if options.Creds != "" {
		if _, err := atomicfile.ReadPrivate(options.Creds); err != nil {
			return nil, fmt.Errorf("--creds: %w", err)
		}
		out[0] = nats.UserCredentials(options.Creds)
	}

	if options.TLS != "" {
		conf, err := authority.ClientTLS(options.TLS, user)
		if err != nil {
			return nil, err
		}
		out = append(out, nats.Secure(conf))
	}

	return out, nil
}
