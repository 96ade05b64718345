package methods_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// A method draws from Local.Rand and Global.Rand alone, whose numbers a trace counts. No file of this folder uses
// method.Rand, which a trace does not count, or another generator. dp's option secure has a generator of secret noise;
// its draws are recorded all the same.
func TestMethodsDrawWhereTracesCount(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	uncounted := map[string]bool{"method.Rand": true, "rand.New": true, "rand.NewPCG": true}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src := filetest.Read(t, name)
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
		goldentest.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			given, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := given.X.(*ast.Ident)
			if ok && uncounted[pkg.Name+"."+given.Sel.Name] && name != "dp.go" {
				t.Errorf("%s: %s.%s is a source that no trace counts; use Local.Rand or Global.Rand",
					set.Position(call.Pos()), pkg.Name, given.Sel.Name)
			}
			return true
		})
	}
}
