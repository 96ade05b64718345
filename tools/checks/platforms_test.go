package checks

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/goldentest"
)

// All packages and their dependencies pass type checking for every platform with a pinned ONNX Runtime library. The
// test does not run cgo, so that it needs no cross compiler. Of the standard library, and of others' packages that need
// cgo, it checks declarations.
func TestEveryPlatform(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the source of all dependencies")
	}
	for _, platform := range []string{"linux/arm64", "darwin/arm64", "windows/amd64"} {
		t.Run(platform, func(t *testing.T) { typeCheck(t, platform) })
	}
}

func typeCheck(t *testing.T, platform string) {
	system, arch, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", "list", "-e", "-deps",
		"-json=ImportPath,Dir,Standard,GoFiles,CgoFiles,ImportMap", "./...")
	cmd.Dir = goldentest.Module(t)
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=1")
	out, err := cmd.Output()
	goldentest.NoError(t, err)
	own, done := 0, importer{"unsafe": types.Unsafe}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir   string
			Standard          bool
			GoFiles, CgoFiles []string
			ImportMap         map[string]string
		}
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		set, files := token.NewFileSet(), []*ast.File(nil)
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			goldentest.NoError(t, err)
			files = append(files, f)
		}
		ours := strings.HasPrefix(p.ImportPath, Module+"/")
		known := ours || len(p.CgoFiles) == 0
		c := types.Config{FakeImportC: true, IgnoreFuncBodies: !known || p.Standard, Sizes: types.SizesFor("gc", arch),
			Importer: mapped{done, p.ImportMap}, Error: func(err error) {
				if known && !strings.Contains(err.Error(), "invalid type") { // of a constant of C
					t.Error(err)
				}
			}}
		done[p.ImportPath], _ = c.Check(p.ImportPath, set, files, nil)
		if ours {
			own++
		}
	}
	if own < 50 {
		t.Errorf("%d packages of the program were looked at; there are more", own)
	}
}

// importer returns packages that were checked before.
type importer map[string]*types.Package

// mapped is an importer for a package with mapped imports, such as vendored ones of the standard library.
type mapped struct {
	importer
	names map[string]string
}

func (m mapped) Import(path string) (*types.Package, error) {
	if other, ok := m.names[path]; ok {
		path = other
	}
	if p := m.importer[path]; p != nil {
		return p, nil
	}
	return nil, os.ErrNotExist
}
