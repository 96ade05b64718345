package cli

import (
	"fmt"
	"os"
	"strings"

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
	l.StringVar(&a.token, "token", "", token+"; other users of this machine can see it; they cannot with "+
		"--token-file or "+tokenVariable)
	l.StringVar(&a.tokenFile, "token-file", "", "file with the token")
	l.StringVar(&a.TLS, "tls", "", tls)
}

// Token returns the token of the flag, the file or the environment; empty for none.
func (a Access) Token() (string, error) {
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
