package checks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
)

// NamesTested finds places where a Go file depends on the name of a method: a name as an operand of == or !=, in a
// case, as a key or an index, as an argument of a function of strings or slices, or as a named constant or variable. A
// name as a plain value, such as the default of a setting, is allowed.
func NamesTested(file string, source []byte, names []string) ([]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var bad []string
	check := func(how string, list ...ast.Expr) {
		for _, e := range list {
			l, ok := ast.Unparen(e).(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				continue
			}
			if text, err := strconv.Unquote(l.Value); err == nil && slices.Contains(names, text) {
				bad = append(bad, fmt.Sprintf("%s: method name %q %s: let the method say what it needs",
					set.Position(l.Pos()), text, how))
			}
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				check("is compared", n.X, n.Y)
			}
		case *ast.CaseClause:
			check("is a case", n.List...)
		case *ast.KeyValueExpr:
			check("is a key", n.Key)
		case *ast.IndexExpr:
			check("is an index", n.Index)
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok {
				if p, ok := f.X.(*ast.Ident); ok && (p.Name == "strings" || p.Name == "slices") {
					check("is searched for", n.Args...)
				}
			}
		case *ast.ValueSpec:
			check("is given another name", n.Values...)
		}
		return true
	})
	return bad, nil
}
