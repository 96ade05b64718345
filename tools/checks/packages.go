// Package checks keeps the dependency rules of the layers, how large files and folders may be, and what may lie in the
// repository, as rules that a test runs. A rule gives one line for everything that breaks it.
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

// Module is the path that every package of ours starts with.
const Module = "promptfed"

// Package is what `go list -json` says of a package, as far as rules read it.
type Package struct {
	ImportPath   string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string // all packages that the package needs, tests apart
}

// direct are the imports of a package and of its tests.
func (p Package) direct() []string { return slices.Concat(p.Imports, p.TestImports, p.XTestImports) }

// inModule is the path inside the module: runtime/ort; "." at its root.
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

// within tells whether a path is the folder or lies under it.
func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// List asks the go command for all packages of the module that dir lies in.
func List(dir string) ([]Package, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,TestImports,XTestImports,Deps", Module+"/...")
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
