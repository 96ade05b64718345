package checks

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"unicode/utf8"
)

// Limits on files and folders.
const (
	mostColumns = 120 // of a line, with a tab as four columns; and bytes
	mostFiles   = 20  // Go files of a folder, without tests and doc.go; a folder with more has two subjects
)

// Folders finds folders with too many Go files.
func Folders(files []string) []string {
	count := map[string]int{}
	for _, f := range files {
		if strings.HasSuffix(f, ".go") && !strings.HasSuffix(f, "_test.go") && path.Base(f) != "doc.go" {
			count[path.Dir(f)]++
		}
	}

	var bad []string
	for folder, n := range count {
		if n > mostFiles {
			bad = append(bad, fmt.Sprintf("%s has %d Go files, at most %d: split it by subject", folder, n, mostFiles))
		}
	}

	return bad
}

// Comments finds the package comment of a file that is not doc.go, in a folder of more than one Go file.
func Comments(file string, source []byte, files []string) ([]string, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), file, source, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil || tree.Doc == nil || path.Base(file) == "doc.go" || strings.HasSuffix(file, "_test.go") {
		return nil, err
	}

	for _, f := range files {
		if f != file && path.Dir(f) == path.Dir(file) && strings.HasSuffix(f, ".go") &&
			!strings.HasSuffix(f, "_test.go") {
			return []string{file + " has the package comment: move it to doc.go"}, nil
		}
	}

	return nil, nil
}

// Lines finds lines with too many bytes or columns, also in struct tags and raw strings. The help text of a key that is
// too long for its tag is in LongHelp (federation/configtags).
func Lines(file string, source []byte) ([]string, error) {
	var bad []string
	for i, line := range strings.Split(string(source), "\n") {
		if n := max(len(line), utf8.RuneCountInString(line)+3*strings.Count(line, "\t")); n > mostColumns {
			bad = append(bad, fmt.Sprintf("%s:%d: %d columns or bytes, at most %d", file, i+1, n, mostColumns))
		}
	}
	return bad, nil
}
