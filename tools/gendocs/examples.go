package main

import (
	"os"
	"path/filepath"
	"strings"
)

// requirements is the line in the go.mod of an example before the requirements that are copied from the module.
const requirements = "// What promptfed requires itself, as make generate copies it.\n"

// examples returns go.mod and go.sum of the modules under docs/examples. They require what the module requires, so that
// they build without a network.
func examples(root string) ([]document, error) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "examples", "*", "go.mod"))
	if err != nil {
		return nil, err
	}

	main, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}

	_, needs, _ := strings.Cut(string(main), "\nrequire ")
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return nil, err
	}

	var out []document
	for _, path := range paths {
		is, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}

		own, _, _ := strings.Cut(string(is), requirements)
		module, err := newDocument(path, own+requirements+"require "+needs)
		if err != nil {
			return nil, err
		}

		sum, err := newDocument(filepath.Join(filepath.Dir(path), "go.sum"), string(sums))
		if err != nil {
			return nil, err
		}

		out = append(out, module, sum)
	}

	return out, nil
}
