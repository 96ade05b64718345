package distributed

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/remote"
	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
)

// Access holds the flags of a connection: the folder of its certificates and the shared secret.
type Access struct {
	TLS              string
	token, tokenFile string
}

// tokenVariable is the environment variable of the token.
const tokenVariable = "PROMPTFED_TOKEN"

// add adds the flags to a command.
func (a *Access) add(c *cobra.Command, token, tls string) {
	l := c.Flags()
	l.StringVar(&a.token, "token", "", token+"; other users of this machine can see it; they cannot with "+
		"--token-file or "+tokenVariable)
	l.StringVar(&a.tokenFile, "token-file", "", "file with the token")
	l.StringVar(&a.TLS, "tls", "", tls)
}

// readToken returns the token of the flag, the file or the environment; empty for none.
func (a Access) readToken() (string, error) {
	switch {
	case a.token != "" && a.tokenFile != "":
		return "", cli.Usagef("--token and --token-file: give only one of them")
	case a.token != "":
		return a.token, nil
	case a.tokenFile == "":
		return os.Getenv(tokenVariable), nil
	}
	b, err := atomicfile.ReadPrivate(a.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return "", fmt.Errorf("--token-file: %s is empty", a.tokenFile)
	}
	return text, nil
}

// certificate returns the identity of a user's certificate; without --tls an identity without a key.
func (a Access) certificate(user string) (certs.Identity, error) {
	if a.TLS == "" {
		return certs.Identity{}, nil
	}
	return authority.Identity(a.TLS, user)
}

// server returns the way to the server of a run for a user. Without --tls, state is the folder of the key; empty for a
// new key.
func (a Access) server(url, user, state string, log *slog.Logger) (*remote.Link, error) {
	token, err := a.readToken()
	if err != nil {
		return nil, err
	}
	who, err := a.certificate(user)
	if err == nil {
		who, err = who.WithKey(state)
	}
	return &remote.Link{URL: url, Name: user, Identity: who, Token: token, Log: log}, err
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
