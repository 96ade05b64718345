package checks

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of what is read at a time.
const (
	mostColumns = 120 // of a line, a tab counted as four, and bytes
	mostFiles   = 20  // Go files of a folder, tests apart: more are a sign of two subjects
)

// larger are folders that hold more than mostFiles; they may shrink and not grow. Commands and methods are a file each.
var larger = map[string]int{"federation/methods": 79, "tools/promptfed/command": 45}

// Folders finds folders with too many Go files, and exceptions that are none any more.
func Folders(files []string) []string {
	count := map[string]int{}
	for _, f := range files {
		if strings.HasSuffix(f, ".go") && !strings.HasSuffix(f, "_test.go") {
			count[f[:max(0, strings.LastIndexByte(f, '/'))]]++
		}
	}
	var bad []string
	for folder, n := range count {
		if most := max(mostFiles, larger[folder]); n > most {
			bad = append(bad, fmt.Sprintf("%s has %d Go files, at most %d: split it by subject", folder, n, most))
		}
	}
	for folder, n := range larger {
		if count[folder] < n {
			bad = append(bad, fmt.Sprintf("%s has %d Go files now: lower its exception of %d", folder, count[folder],
				n))
		}
	}
	return bad
}

// Lines finds lines that are too long, in bytes or in columns, struct tags and raw strings among them.
// The help of a key that does not fit into its tag stands in LongHelp (federation/configtags).
func Lines(file string, source []byte) ([]string, error) {
	var bad []string
	for i, line := range strings.Split(string(source), "\n") {
		if n := max(len(line), utf8.RuneCountInString(line)+3*strings.Count(line, "\t")); n > mostColumns {
			bad = append(bad, fmt.Sprintf("%s:%d: %d columns or bytes, at most %d", file, i+1, n, mostColumns))
		}
	}
	return bad, nil
}
