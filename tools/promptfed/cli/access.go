package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"promptfed/runtime/atomicfile"
)

// Access holds the flags of a connection: the folder of its certificates and the shared secret.
type Access struct {
	TLS              string
	token, tokenFile string
}

// tokenVariable is the environment variable of the token.
const tokenVariable = "PROMPTFED_TOKEN"

// Add adds the flags to a command, with the help texts of the token and of the folder.
func (a *Access) Add(c *cobra.Command, token, tls string) {
	l := c.Flags()
	l.Var((*NonEmpty)(&a.token), "token", token+"; other users of this machine can see it; they cannot with "+
		"--token-file or "+tokenVariable)
	l.Var((*NonEmpty)(&a.tokenFile), "token-file", "file with the token")
	l.Var((*NonEmpty)(&a.TLS), "tls", tls)
}

// NonEmpty is the value of a flag that protects something, or names a folder to write. An empty one, as from a variable
// of a script that is not set, is an error.
type NonEmpty string

// Set sets the value.
func (n *NonEmpty) Set(text string) error {
	if text == "" {
		return errors.New("the value is empty; give one, or leave the flag out")
	}
	*n = NonEmpty(text)
	return nil
}

// Type returns the name of the type in help texts.
func (n *NonEmpty) Type() string { return "string" }

func (n *NonEmpty) String() string { return string(*n) }

// maxToken is the size of the longest token, in bytes: it is in the header of every request.
const maxToken = 1 << 10

// Token returns the token of the flag, the file or the environment; empty for none.
func (a Access) Token() (string, error) {
	token, err := a.readToken()
	if err == nil && (len(token) > maxToken || strings.ContainsFunc(token, unicode.IsControl)) {
		err = Usagef("the token has %d bytes, a line break or another control character, and cannot be sent: use one "+
			"line of at most %d bytes", len(token), maxToken)
	}
	return token, err
}

func (a Access) readToken() (string, error) {
	switch {
	case a.token != "" && a.tokenFile != "":
		return "", Usagef("--token and --token-file: give only one of them")
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

// QueueOptions are the options of a connection to the work queue of a cluster.
type QueueOptions struct {
	Access
	Queue string
	Creds string // NATS credentials file; empty for none
}

// Add adds the flags to a command.
func (o *QueueOptions) Add(c *cobra.Command) {
	l := c.Flags()
	l.StringVar(&o.Queue, "queue", "default", "name of the work queue on the NATS server; workers must use the same")
	o.Access.Add(c, "secret that both sides use", "folder that promptfed certs made")
	l.StringVar(&o.Creds, "creds", "", "NATS credentials file")
}

// ClusterFlags are the flags of a run whose clients train on other machines.
type ClusterFlags struct {
	QueueOptions
	URL string // empty without other machines
	// Opened, if not nil, receives the address of the NATS server that OpenCluster starts in this process.
	Opened func(url string) error
}

// ListenScheme is the scheme of the URL of a NATS server that OpenCluster starts in this process.
const ListenScheme = "listen://"

// Add adds the flags to a command.
func (f *ClusterFlags) Add(c *cobra.Command) {
	c.Flags().StringVar(&f.URL, "cluster", "", "train the clients on machines that run promptfed work: URL of a NATS "+
		"server with JetStream, or listen://HOST:PORT to start one here")
	f.QueueOptions.Add(c)
}
