package program

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every flag in a file of docs/deploy is a flag of a command that these files call.
func TestDeployFlags(t *testing.T) {
	help := ""
	for _, name := range []string{"run", "work", "serve", "join", "certs", "sweep", "launch"} {
		help += mustRun(t, name, "--help")
	}
	// of apt-get, docker and systemctl
	others := []string{"--no-install-recommends", "--from", "--build", "--build-arg", "--now"}
	flags, seen := regexp.MustCompile(`--[a-z][a-z-]*`), 0
	err := filepath.WalkDir("../../../docs/deploy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, flag := range flags.FindAllString(string(text), -1) {
			seen++
			if !strings.Contains(help, flag+" ") && !slices.Contains(others, flag) {
				t.Errorf("%s: no command has %s", path, flag)
			}
		}
		return err
	})
	if err != nil || seen < 20 {
		t.Errorf("%d flags, %v", seen, err)
	}
}
