package checks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// Module is the path of the module.
const Module = "promptfed"

// Package holds the fields of `go list -json` that rules read.
type Package struct {
	ImportPath   string
	Doc          string // the first sentence of its comment
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string // direct and indirect imports, without those of tests
}

// direct returns the imports of a package and of its tests.
func (p Package) direct() []string { return slices.Concat(p.Imports, p.TestImports, p.XTestImports) }

// inModule returns the path inside the module, such as runtime/ort; "." for its root.
func (p Package) inModule() string { return inModule(p.ImportPath) }

func inModule(path string) string {
	if path == Module {
		return "."
	}

	inside, ok := strings.CutPrefix(path, Module+"/")
	if !ok {
		return ""
	}

	return inside
}

// Undocumented finds packages without a comment.
func Undocumented(list []Package) (bad []string) {
	for _, p := range list {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			bad = append(bad, p.inModule()+": no file has a package comment; say in doc.go what the package is for")
		}
	}
	return bad
}

// within reports whether a path is the folder or below it.
func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// List returns all packages of the module that contains dir.
func List(dir string) ([]Package, error) {
	fields := "-json=ImportPath,Doc,GoFiles,Imports,TestImports,XTestImports,Deps"
	cmd := exec.Command("go", "list", fields, Module+"/...")
	cmd.Dir = dir
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, strings.TrimSpace(failure.String()))
	}

	var list []Package
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := d.Decode(&p); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		list = append(list, p)
	}
}
