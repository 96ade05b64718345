package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// Every message that docs/troubleshooting.md explains is in the sources.
func TestMessagesAreThoseOfTheProgram(t *testing.T) {
	text := filetest.Read(t, root, "docs", "troubleshooting.md")
	var sources strings.Builder
	for _, layer := range []string{"tools", "configs", "federation", "models", "runtime"} {
		err := filepath.WalkDir(filepath.Join(root, layer), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".go", ".sh"}, filepath.Ext(path)) ||
				strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			sources.Write(b)
			return err
		})
		goldentest.NoError(t, err)
	}
	// join the lines of a long message
	said := regexp.MustCompile(`" ?\+\n\s*"`).ReplaceAllString(sources.String(), "")
	first := regexp.MustCompile("(?m)^\\| (`.*?) \\|")
	rows := first.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 10 {
		t.Fatalf("only %d messages were found", len(rows))
	}
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if !strings.Contains(said, m[1]) {
				t.Errorf("docs/troubleshooting.md explains %q, which nothing says", m[1])
			}
		}
	}
}
