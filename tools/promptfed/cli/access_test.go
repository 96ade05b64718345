package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"promptfed/runtime/goldentest"
)

// A token is what the header of a request can hold. A flag that protects a connection is not empty.
func TestToken(t *testing.T) {
	path, long := filepath.Join(t.TempDir(), "token"), strings.Repeat("x", 1024)
	for text, says := range map[string]string{"s\u00e9cret 1\n": "", long: "", long + "x": "1025 bytes",
		"abc\ndef": "control character", "a\tb": "control character", " \n": "is empty"} {
		goldentest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		token, err := Access{tokenFile: path}.Token()
		if says == "" && (err != nil || token != strings.TrimSpace(text)) {
			t.Errorf("%.20q: %.20q, %v", text, token, err)
		} else if says != "" {
			goldentest.WantErrorOf(t, text, err, says)
		}
	}
	for _, flag := range []string{"--token=", "--token-file=", "--tls="} {
		command := &cobra.Command{}
		new(Access).Add(command, "", "")
		goldentest.WantErrorOf(t, flag, command.ParseFlags([]string{flag}), "is empty")
	}
}
