package main

import (
	"os"
	"path/filepath"
	"strings"
)

// requirements is the line in the go.mod of an example before the requirements that are copied from the module.
const requirements = "// What promptfed requires itself, as make docs copies it.\n"

// examples returns go.mod and go.sum of the modules under docs/examples. They require what the module requires, so that
// they build without a network.
func examples(root string) ([]document, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "examples", "*", "go.mod"))
	if err != nil {
		return nil, err
	}
	read := func(path string) string {
		text, e := os.ReadFile(path)
		if e != nil && err == nil {
			err = e
		}
		return string(text)
	}
	_, needs, _ := strings.Cut(read(filepath.Join(root, "go.mod")), "\nrequire ")
	sums := read(filepath.Join(root, "go.sum"))
	var out []document
	for _, path := range paths {
		is := read(path)
		own, _, _ := strings.Cut(is, requirements)
		sumPath := filepath.Join(filepath.Dir(path), "go.sum")
		out = append(out, document{path, is, own + requirements + "require " + needs},
			document{sumPath, read(sumPath), sums})
	}
	return out, err
}
