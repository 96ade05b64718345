package checks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// mostDense is the largest number of lines of a function without a blank line, beside one literal or switch.
const mostDense = 36

// Steps finds functions without blank lines between their steps, and variables called of.
func Steps(file string, source []byte) ([]string, error) {
	if generatedGo.Match(source) {
		return nil, nil
	}

	positions := token.NewFileSet()
	tree, err := parser.ParseFile(positions, file, source, 0)
	if err != nil {
		return nil, err
	}

	var bad []string
	line := func(at token.Pos) int { return positions.Position(at).Line }
	ast.Inspect(tree, func(n ast.Node) bool {
		for _, name := range declared(n) {
			if name.Name == "of" {
				bad = append(bad, fmt.Sprintf("%s:%d: a variable is called of: call it what it holds", file,
					line(name.Pos())))
			}
		}
		return true
	})

	if strings.HasSuffix(file, "_test.go") {
		return bad, nil
	}

	lines := strings.Split(string(source), "\n")
	for _, d := range tree.Decls {
		function, ok := d.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}

		begin := line(function.Body.Lbrace)
		for at := begin + 1; at <= line(function.Body.Rbrace); at++ {
			if at < line(function.Body.Rbrace) && strings.TrimSpace(lines[at-1]) != "" {
				continue
			}
			if dense := at - begin - 1 - longest(function.Body, begin, at, line); dense > mostDense {
				bad = append(bad, fmt.Sprintf("%s:%d: %d lines without a blank line between steps, at most %d", file,
					begin+1, dense, mostDense))
			}
			begin = at
		}
	}
	return bad, nil
}

// longest returns the lines of the longest literal, switch, select or return between two lines.
func longest(body ast.Node, from, to int, line func(token.Pos) int) (most int) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.CompositeLit, *ast.ReturnStmt, *ast.SelectStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt:
			most = max(most, min(line(n.End()), to)-max(line(n.Pos()), from)+1)
		}
		return true
	})
	return most
}

// declared returns the names of variables that a node declares.
func declared(n ast.Node) (names []*ast.Ident) {
	var expressions []ast.Expr
	switch node := n.(type) {
	case *ast.AssignStmt:
		if node.Tok == token.DEFINE {
			expressions = node.Lhs
		}
	case *ast.RangeStmt:
		if node.Tok == token.DEFINE {
			expressions = []ast.Expr{node.Key, node.Value}
		}
	case *ast.ValueSpec:
		return node.Names
	case *ast.FuncType:
		for _, list := range []*ast.FieldList{node.Params, node.Results} {
			if list != nil {
				for _, f := range list.List {
					names = append(names, f.Names...)
				}
			}
		}
	}

	for _, e := range expressions {
		if name, ok := e.(*ast.Ident); ok {
			names = append(names, name)
		}
	}
	return names
}
