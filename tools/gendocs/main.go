package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"promptfed/federation/methodtest"
	"promptfed/tools/checks"
)

func main() {
	check := flag.Bool("check", false, "write nothing, list the files that are not current, and fail if there are any")
	flag.Parse()
	if err := generate(".", *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// generate writes the documents below root that are not current, or returns an error that names them.
func generate(root string, check bool) error {
	list, err := documents(root)
	if err != nil {
		return err
	}

	var stale []string
	for _, d := range list {
		switch {
		case check && !d.current:
			stale = append(stale, d.path)
		case check || d.is == d.want:
		default:
			if err := os.WriteFile(d.path, []byte(d.want), 0o644); err != nil {
				return err
			}
			fmt.Println("wrote", d.path)
		}
	}

	if len(stale) > 0 {
		return fmt.Errorf("not current: %s; run make generate", strings.Join(stale, ", "))
	}

	return nil
}

// document is a generated file, or one with generated tables: its text in the checkout, and the text that it should
// have.
type document struct {
	path, is, want string
	current        bool // is may stay; a budget may be one step off
}

// newDocument reads the current text of a document.
func newDocument(path, want string) (document, error) {
	is, err := os.ReadFile(path)
	return document{path, string(is), want, string(is) == want}, err
}

// documents returns README.md, the Markdown files of docs/, the module files of its examples, the example of a method
// in a file, and in a git checkout the budget, which counts the others as they should be.
func documents(root string) ([]document, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}

	all, err := tables(root)
	if err != nil {
		return nil, err
	}

	out, err := examples(root)
	if err != nil {
		return nil, err
	}

	for _, path := range append([]string{filepath.Join(root, "README.md")}, paths...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		want, err := fill(string(text), all)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, document{path, string(text), want, string(text) == want})
	}

	method, err := methodtest.ExampleFile()
	if err != nil {
		return nil, err
	}

	path := filepath.Join(root, "federation", "methods", "fromfile", "example.onnx")
	example, err := newDocument(path, string(method))
	if err != nil {
		return nil, err
	}

	out = append(out, example)
	if _, ok := checks.Tracked(root); !ok { // the budget counts what git tracks
		return out, nil
	}

	budget, err := budgetOf(root, out)
	return append(out, budget), err
}

// budgetOf returns the budget of the checkout with current documents.
func budgetOf(root string, documents []document) (document, error) {
	changed := map[string][]byte{}
	for _, d := range documents {
		name, err := filepath.Rel(root, d.path)
		if err != nil {
			return document{}, err
		}
		changed[filepath.ToSlash(name)] = []byte(d.want)
	}

	want, current, err := checks.Budget(root, changed)
	if err != nil {
		return document{}, err
	}

	d, err := newDocument(filepath.Join(root, checks.BudgetFile), want)
	d.current = current
	return d, err
}
