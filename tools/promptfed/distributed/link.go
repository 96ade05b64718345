package distributed

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
)

// LinkOptions are the options of a connection to a NATS server.
type LinkOptions struct {
	token, tokenFile, creds string
	TLS                     string
	user                    string // common name of the certificate, and NATS user
}

// tokenVariable is the environment variable of the token.
const tokenVariable = "PROMPTFED_TOKEN"

// addToken adds the flags of a shared secret.
func (o *LinkOptions) addToken(c *cobra.Command, what string) {
	l := c.Flags()
	l.StringVar(&o.token, "token", "", what+"; other users of this machine can see it; they cannot with "+
		"--token-file or "+tokenVariable)
	l.StringVar(&o.tokenFile, "token-file", "", "file with the token")
}

// secret reads the token from the flag, the file or the environment.
func (o *LinkOptions) secret() error {
	switch {
	case o.token != "" && o.tokenFile != "":
		return cli.Usagef("--token and --token-file: give only one of them")
	case o.token != "":
	case o.tokenFile != "":
		b, err := atomicfile.ReadPrivate(o.tokenFile)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		if o.token = strings.TrimSpace(string(b)); o.token == "" {
			return fmt.Errorf("--token-file: %s is empty", o.tokenFile)
		}
		o.tokenFile = ""
	default:
		o.token = os.Getenv(tokenVariable)
	}
	return nil
}

func (o LinkOptions) options() ([]nats.Option, error) {
	if err := o.secret(); err != nil {
		return nil, err
	}
	var out []nats.Option
	switch {
	case o.creds != "":
		if _, err := atomicfile.ReadPrivate(o.creds); err != nil {
			return nil, fmt.Errorf("--creds: %w", err)
		}
		out = append(out, nats.UserCredentials(o.creds))
	default:
		out = append(out, nats.UserInfo(o.user, o.token))
	}
	if o.TLS != "" {
		conf, err := authority.ClientTLS(o.TLS, o.user)
		if err != nil {
			return nil, err
		}
		out = append(out, nats.Secure(conf))
	}
	return out, nil
}

// identity returns the identity of the certificate, which signs messages.
func (o LinkOptions) identity() (certs.Identity, error) {
	if o.TLS == "" {
		return certs.Identity{}, nil
	}
	conf, err := authority.ClientTLS(o.TLS, o.user)
	if err != nil {
		return certs.Identity{}, err
	}
	revoked, err := authority.Revoked(o.TLS)
	if err != nil {
		return certs.Identity{}, err
	}
	who, err := certs.FromTLS(conf)
	return who.WithRevocations(revoked), err
}

func addQueue(c *cobra.Command, queue *string) {
	c.Flags().StringVar(queue, "queue", "default", "name of the work queue on the NATS server; workers must use the "+
		"same")
}

func addLink(c *cobra.Command, o *LinkOptions) {
	l := c.Flags()
	o.addToken(c, "secret that both sides use")
	l.StringVar(&o.creds, "creds", "", "NATS credentials file")
	l.StringVar(&o.TLS, "tls", "", "folder that promptfed certs made")
}

// plainToken is the warning of a server that only a token protects.
const plainToken = "nothing is encrypted, the token included, and whoever has the token can be any client; use --tls " +
	"(promptfed certs)"

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
