package checks

import (
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/methods"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func report(t *testing.T, bad []string) {
	t.Helper()
	for _, line := range bad {
		t.Error(line)
	}
}

func TestImports(t *testing.T) {
	list, err := List(goldentest.Module(t))
	goldentest.NoError(t, err)
	if len(list) < 20 {
		t.Fatalf("go list gave %d packages; there are more", len(list))
	}
	report(t, Imports(list))
	report(t, Undocumented(list))
}

func TestModelsBuildWithoutCGO(t *testing.T) {
	cmd := exec.Command("go", "build", Module+"/models/...")
	cmd.Dir = goldentest.Module(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("models do not build with CGO_ENABLED=0: %v\n%s", err, out)
	}
}

func TestMethodNamesAreTestedNowhere(t *testing.T) {
	var names []string
	for _, e := range methods.Table() {
		if e.Name != "onnx" { // a format of other files too
			names = append(names, e.Name)
		}
	}
	but := []string{"federation/methods", "federation/methodtest"}
	eachGoFile(t, false, but, func(file string, source []byte) ([]string, error) {
		return NamesTested(file, source, names)
	})
}

// No file outside of the definitions lists metrics. Words that name other things as well are left out: a client's loss,
// a set, a domain, the class names new, numbers of bytes and seconds.
func TestNoSecondListOfMetrics(t *testing.T) {
	var names []string
	for _, d := range metrics.Definitions() {
		if !slices.Contains([]string{metrics.Accuracy, metrics.Loss, metrics.Set, metrics.Domain, metrics.New,
			metrics.Note, metrics.Val, metrics.Bytes, metrics.Seconds, metrics.Simulated}, d.Name) {
			names = append(names, d.Name)
			if key := strings.ReplaceAll(d.Key, "_", "-"); key != "" && key != d.Name {
				names = append(names, key)
			}
		}
	}
	eachGoFile(t, false, []string{"federation/engine/metrics"}, func(file string, source []byte) ([]string, error) {
		return MetricLists(file, source, names)
	})
}

func TestOneReaderOfExternalData(t *testing.T) {
	eachGoFile(t, true, []string{"runtime/onnx"}, ExternalReaders)
}

func TestNoTextOfAnErrorIsSearched(t *testing.T) {
	noType := []string{"federation/net/client/link.go", "federation/net/certs/explain.go"} // alerts of crypto/tls
	forTests := []string{"federation/methodtest", "runtime/goldentest"}
	eachGoFile(t, false, append(noType, forTests...), ErrorTexts)
}

// Of the code that has inputs and outputs of graphs, only these files take names apart: those of other things, and
// port.go those of a user's file.
func TestNoNameOfAnInputIsParsed(t *testing.T) {
	apart := []string{"federation/methods/fromfile/port.go", "federation/method/term.go",
		"federation/engine/metrics/name.go",
		"federation/engine/message/cohort.go", "federation/engine/state", // names in messages and files
		"federation/engine/run.go", "federation/engine/evaluation.go"} // names of files
	eachGoFile(t, false, apart, func(file string, source []byte) ([]string, error) {
		if within(file, "federation/method") || within(file, "federation/engine") ||
			within(file, "federation/methods/fromfile") {
			return ParsedNames(file, source)
		}
		return nil, nil
	})
}

func TestNoTestDependsOnTheMachine(t *testing.T) {
	eachGoFile(t, true, []string{"runtime/busytest"}, BusyTests)
}

// eachGoFile applies a rule to the Go files of all layers and of the examples, also to tests where wanted, except to
// those in some folders.
func eachGoFile(t *testing.T, tests bool, but []string, rule func(file string, source []byte) ([]string, error)) {
	t.Helper()
	dir := goldentest.Module(t)
	read := 0
	for _, folder := range append(slices.Clone(layers), "docs") {
		err := filepath.WalkDir(filepath.Join(dir, folder), func(path string, d fs.DirEntry, err error) error {
			left := !tests && strings.HasSuffix(path, "_test.go")
			if err != nil || left || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			rel, err := filepath.Rel(dir, path)
			file := filepath.ToSlash(rel)
			if err != nil || slices.ContainsFunc(but, func(folder string) bool { return within(file, folder) }) {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			read++
			bad, err := rule(file, source)
			report(t, bad)
			return err
		})
		goldentest.NoError(t, err)
	}
	if read < 100 {
		t.Errorf("only %d Go files were read", read)
	}
}

// Every test, fuzz test and benchmark that the documentation names in backticks exists.
func TestDocsNameTests(t *testing.T) {
	dir := goldentest.Module(t)
	exists, is := map[string]bool{}, regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(\w+ `)
	eachGoFile(t, true, nil, func(file string, source []byte) ([]string, error) {
		for _, m := range is.FindAllSubmatch(source, -1) {
			exists[string(m[1])] = strings.HasSuffix(file, "_test.go")
		}
		return nil, nil
	})
	pages, _ := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	named := 0
	for _, page := range append(pages, filepath.Join(dir, "README.md")) {
		text := filetest.Read(t, page)
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`").FindAllSubmatch(text, -1) {
			if named++; !exists[string(m[1])] {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d names of tests were found", named)
	}
}

func TestTracked(t *testing.T) {
	dir := goldentest.Module(t)
	files, ok := Tracked(dir)
	if !ok {
		t.Skip("not a git checkout, or git is not installed")
	}
	sizes, bad, err := Measure(dir, files)
	goldentest.NoError(t, err)
	report(t, Places(files))
	report(t, Sizes(sizes))
	report(t, bad)
}

// A checkout may contain Go folders that git does not track yet.
func TestNoGoFileAtRuntimesRoot(t *testing.T) {
	p, err := build.ImportDir(filepath.Join(goldentest.Module(t), "runtime"), 0)
	if err == nil {
		t.Errorf("runtime/ holds Go files: %v", p.GoFiles)
	}
}
