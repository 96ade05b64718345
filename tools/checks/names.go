package checks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
)

// sayAt reports a violation at a node.
type sayAt func(n ast.Node, format string, a ...any)

// inspect parses a Go file and applies a rule to each of its nodes.
func inspect(file string, source []byte, rule func(n ast.Node, say sayAt)) (bad []string, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	say := func(n ast.Node, format string, a ...any) {
		bad = append(bad, fmt.Sprintf("%s: %s", set.Position(n.Pos()), fmt.Sprintf(format, a...)))
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		rule(n, say)
		return true
	})

	return bad, nil
}

// text returns the value of a string literal, and false for other nodes.
func text(n ast.Node) (string, bool) {
	l, ok := n.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(l.Value)
	return value, err == nil
}

// NamesTested finds places where a Go file depends on the name of a method: a name as an operand of == or !=, in a
// case, as a key or an index, as an argument of a function of strings or slices, or as a named constant or variable. A
// name as a plain value, such as the default of a setting, is allowed.
func NamesTested(file string, source []byte, names []string) ([]string, error) {
	return inspect(file, source, func(n ast.Node, say sayAt) {
		check := func(how string, list ...ast.Expr) {
			for _, e := range list {
				if name, ok := text(ast.Unparen(e)); ok && slices.Contains(names, name) {
					say(e, "method name %q %s: let the method say what it needs", name, how)
				}
			}
		}

		switch node := n.(type) {
		case *ast.BinaryExpr:
			if node.Op == token.EQL || node.Op == token.NEQ {
				check("is compared", node.X, node.Y)
			}
		case *ast.CaseClause:
			check("is a case", node.List...)
		case *ast.KeyValueExpr:
			check("is a key", node.Key)
		case *ast.IndexExpr:
			check("is an index", node.Index)
		case *ast.CallExpr:
			if f, ok := node.Fun.(*ast.SelectorExpr); ok {
				if p, ok := f.X.(*ast.Ident); ok && (p.Name == "strings" || p.Name == "slices") {
					check("is searched for", node.Args...)
				}
			}
		case *ast.ValueSpec:
			check("is given another name", node.Values...)
		}
	})
}
