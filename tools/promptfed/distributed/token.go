package distributed

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"promptfed/runtime/atomicfile"
	"promptfed/tools/promptfed/cli"
)

// token holds the flags of a shared secret.
type token struct{ text, file string }

// tokenVariable is the environment variable of the token.
const tokenVariable = "PROMPTFED_TOKEN"

// add adds the flags to a command.
func (t *token) add(c *cobra.Command, what string) {
	l := c.Flags()
	l.StringVar(&t.text, "token", "", what+"; other users of this machine can see it; they cannot with "+
		"--token-file or "+tokenVariable)
	l.StringVar(&t.file, "token-file", "", "file with the token")
}

// read returns the token of the flag, the file or the environment; empty for none.
func (t token) read() (string, error) {
	switch {
	case t.text != "" && t.file != "":
		return "", cli.Usagef("--token and --token-file: give only one of them")
	case t.text != "":
		return t.text, nil
	case t.file == "":
		return os.Getenv(tokenVariable), nil
	}
	b, err := atomicfile.ReadPrivate(t.file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return "", fmt.Errorf("--token-file: %s is empty", t.file)
	}
	return text, nil
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
