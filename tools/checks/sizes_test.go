package checks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

func TestFolders(t *testing.T) {
	var files []string
	for i := range mostFiles {
		files = append(files, fmt.Sprintf("runtime/x/%d.go", i), fmt.Sprintf("runtime/x/%d_test.go", i))
	}
	files = append(files, "runtime/x/doc.go")
	if bad := Folders(files); len(bad) > 0 {
		t.Errorf("%q", bad)
	}
	if bad := Folders(append(slices.Clone(files), "runtime/x/more.go")); len(bad) != 1 ||
		!strings.Contains(bad[0], "runtime/x has 21 Go files") {
		t.Errorf("%q", bad)
	}
}

func TestComments(t *testing.T) {
	source := []byte("// Package x computes.\npackage x\n")
	for files, want := range map[string]string{"a/x.go": "", "a/x.go b/y.go": "", "a/x.go a/y_test.go": "",
		"a/x.go a/y.go": "move it to doc.go"} {
		bad, err := Comments("a/x.go", source, strings.Fields(files))
		goldentest.NoError(t, err)
		expect(t, bad, want)
	}
	if bad, err := Comments("a/doc.go", source, []string{"a/doc.go", "a/y.go"}); err != nil || len(bad) > 0 {
		t.Errorf("doc.go: %q, %v", bad, err)
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("e", mostColumns-3)
	for source, want := range map[string]int{"// " + long: 0, "// " + long + "e": 1, "\t// " + long: 1,
		"var a = `" + long + "\n" + long + "\n`": 1, "var a = \"" + long + "\"": 1, "// é" + long[1:]: 1} {
		bad, err := Lines("x.go", []byte("package x\n\n"+source+"\n"))
		if err != nil || len(bad) != want {
			t.Errorf("%.30q: %q, %v; want %d", source, bad, err, want)
		}
	}
}

func TestSizesOfTheTree(t *testing.T) {
	eachGoFile(t, true, nil, Lines)
	files, ok := Tracked(goldentest.Module(t))
	if !ok {
		t.Skip("not a git checkout, or git is not installed")
	}
	report(t, Folders(files))
	eachGoFile(t, true, []string{"docs"}, func(file string, source []byte) ([]string, error) {
		return Comments(file, source, files)
	})
}
