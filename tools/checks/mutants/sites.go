package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// A site is a place of a file where one fault can be planted.
type site struct {
	file       string // path below the package's folder
	line, col  int
	function   string // that contains the place; "" for declarations outside functions
	old, fresh string // the expression or statement without and with the fault
	start, end int    // bytes that by replaces
	by         string
}

// key names a fault in equivalent.txt, whatever its line.
func (s site) key() string { return fmt.Sprintf("%s %s: %s -> %s", s.file, s.function, s.old, s.fresh) }

// swaps are the faults of operators.
var swaps = map[token.Token]token.Token{
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN,
	token.QUO_ASSIGN: token.MUL_ASSIGN, token.INC: token.DEC, token.DEC: token.INC,
}

// calls are the faults of functions.
var calls = map[string]string{"min": "max", "max": "min", "Min": "Max", "Max": "Min", "Floor": "Ceil", "Ceil": "Floor"}

// finder collects the sites of a file.
type finder struct {
	file, function string
	source         []byte
	set            *token.FileSet
	sites          []site
}

// sitesOf returns the sites of a Go file in the order of the file, and none for generated code.
func sitesOf(file string, source []byte) ([]site, error) {
	collector := finder{file: file, source: source, set: token.NewFileSet()}
	tree, err := parser.ParseFile(collector.set, file, source, parser.ParseComments)
	if err != nil || ast.IsGenerated(tree) {
		return nil, err
	}

	for _, d := range tree.Decls {
		collector.function = ""
		if d, ok := d.(*ast.FuncDecl); ok {
			collector.function = d.Name.Name
		}
		ast.Inspect(d, collector.visit)
	}

	return collector.sites, nil
}

func (f *finder) visit(n ast.Node) bool {
	switch node := n.(type) {
	case *ast.ForStmt: // a loop whose step is another one does not end
		for _, part := range []ast.Node{node.Init, node.Cond, node.Body} {
			if part != nil {
				ast.Inspect(part, f.visit)
			}
		}
		return false
	case *ast.BinaryExpr:
		if !isText(node) && !isErrorCheck(node) {
			f.swap(node, node.OpPos, node.Op)
		}
	case *ast.UnaryExpr:
		if node.Op == token.SUB || node.Op == token.NOT {
			f.replace(node, node.OpPos, 1, "")
		}
	case *ast.IncDecStmt:
		f.swap(node, node.TokPos, node.Tok)
	case *ast.AssignStmt:
		if len(node.Rhs) == 1 && !isText(node.Rhs[0]) {
			f.swap(node, node.TokPos, node.Tok)
		}
	case *ast.CallExpr:
		name, _ := node.Fun.(*ast.Ident)
		if s, ok := node.Fun.(*ast.SelectorExpr); ok {
			name = s.Sel
		}
		if name != nil && calls[name.Name] != "" && len(node.Args) > 0 {
			f.replace(node, name.Pos(), len(name.Name), calls[name.Name])
		}
	case *ast.IfStmt:
		if node.Else == nil && leaves(node.Body) && !isErrorCheck(node.Cond) {
			f.replace(node.Cond, node.Cond.Pos(), int(node.Cond.End()-node.Cond.Pos()),
				"false && ("+f.text(node.Cond)+")")
		}
	}

	return true
}

// swap adds the fault of an operator of a node.
func (f *finder) swap(n ast.Node, at token.Pos, op token.Token) {
	if other, ok := swaps[op]; ok {
		f.replace(n, at, len(op.String()), other.String())
	}
}

// replace adds a fault that replaces so many bytes of a node.
func (f *finder) replace(n ast.Node, at token.Pos, length int, by string) {
	old, start := f.text(n), f.set.Position(at).Offset
	from := start - f.set.Position(n.Pos()).Offset
	f.sites = append(f.sites, site{f.file, f.set.Position(at).Line, f.set.Position(at).Column, f.function, short(old),
		short(old[:from] + by + old[from+length:]), start, start + length, by})
}

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.set.Position(n.Pos()).Offset:f.set.Position(n.End()).Offset])
}

// short returns code on one line of at most 100 bytes.
func short(code string) string {
	code = strings.Join(strings.Fields(code), " ")
	if len(code) > 100 {
		code = strings.ToValidUTF8(code[:100], "") + "..."
	}
	return code
}

// isText reports whether an expression is a string literal or a sum with one.
func isText(x ast.Expr) bool {
	if b, ok := x.(*ast.BinaryExpr); ok && b.Op == token.ADD {
		return isText(b.X) || isText(b.Y)
	}
	l, ok := x.(*ast.BasicLit)
	return ok && l.Kind == token.STRING
}

// isErrorCheck reports whether a condition asks only whether there is an error.
func isErrorCheck(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	name, ok := b.X.(*ast.Ident)
	none, isName := b.Y.(*ast.Ident)
	return ok && isName && name.Name == "err" && none.Name == "nil"
}

// leaves reports whether a block ends by leaving the function or the loop.
func leaves(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}

	switch b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}

	return false
}
