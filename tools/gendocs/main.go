package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	list, err := documents(root)
	if err != nil {
		return err
	}
	for _, d := range list {
		if d.is == d.want {
			continue
		}
		if err := os.WriteFile(d.path, []byte(d.want), 0o644); err != nil {
			return err
		}
		fmt.Println("wrote", d.path)
	}
	return nil
}

// document is a Markdown file: its current text, and its text with current tables.
type document struct{ path, is, want string }

// documents returns README.md, the Markdown files of docs/ and the module files of its examples.
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
		out = append(out, document{path, string(text), want})
	}
	return out, nil
}
