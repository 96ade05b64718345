package checks

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// clocks are functions whose use in a test depends on how fast the machine is, with what to use instead.
var clocks = map[string]string{
	"time.Sleep": "Until or Delay", "time.After": "Hung", "time.AfterFunc": "Delay in a goroutine",
	"time.NewTimer": "Hung or Delay", "time.NewTicker": "Until", "time.Tick": "Until",
	"context.WithTimeout": "Context", "context.WithDeadline": "Context",
}

// comparing are methods of time.Time that compare it with another.
var comparing = []string{"After", "Before", "Sub"}

// fixedPort matches an address on this machine with a port that another program may have.
var fixedPort = regexp.MustCompile(`(?:\b127(?:\.\d+){3}|\blocalhost|\[::1\]):[1-9]\d{3,4}\b`)

// randomVerb matches the words of go-json-experiment's errors that each process draws anew: "cannot" or "unable to".
var randomVerb = regexp.MustCompile(`(?:cannot|unable to) (?:un)?marshal JSON`)

// BusyTests finds what makes a test depend on how busy the machine is or on what else runs there: sleeps, timers and
// limits outside of runtime/busytest, seconds that are compared, and ports that the system did not give. It also
// finds words of errors that differ from process to process. Functions in synctest.Test have a clock of their own, and
// benchmarks measure time.
func BusyTests(file string, source []byte) ([]string, error) {
	if !strings.HasSuffix(file, "_test.go") {
		return nil, nil
	}

	measured := map[string]bool{} // variables of the function that hold a measured time
	var apart token.Pos           // the end of a part that may look at the clock
	return inspect(file, source, func(n ast.Node, say sayAt) {
		if n == nil || n.Pos() < apart {
			return
		}

		switch node := n.(type) {
		case *ast.FuncDecl:
			if strings.HasPrefix(node.Name.Name, "Benchmark") {
				apart = node.End()
			}
			clear(measured)
		case *ast.CallExpr:
			name := called(node)
			if name == "synctest.Test" {
				apart = node.End()
			}
			if instead := clocks[name]; instead != "" {
				say(node, "%s in a test: use busytest.%s", name, instead)
			}
			if s, ok := node.Fun.(*ast.SelectorExpr); ok && slices.Contains(comparing, s.Sel.Name) &&
				slices.ContainsFunc(append(slices.Clone(node.Args), s.X), isNow) {
				say(node, "a test compares the time: use busytest.Until, or count what was done")
			}
		case *ast.AssignStmt:
			for i, right := range node.Rhs {
				if id, ok := node.Lhs[i].(*ast.Ident); ok && isElapsed(right, measured) {
					measured[id.Name] = true
				}
			}
		case *ast.BinaryExpr:
			if isComparison(node.Op) && (isElapsed(node.X, measured) || isElapsed(node.Y, measured)) {
				say(node, "a test compares seconds that it measured: count what was done, or use synctest")
			}
		case *ast.BasicLit:
			if address := fixedPort.FindString(node.Value); node.Kind == token.STRING && address != "" {
				say(node, "%s is a fixed port: use busytest.Address, or port 1 for one where nobody listens", address)
			}
			if words := randomVerb.FindString(node.Value); words != "" {
				say(node, "%q differs from process to process: leave out its verb", words)
			}
		}
	})
}

// called names a function of another package or a method that is called, as time.Now or .Now; "" for others.
func called(call *ast.CallExpr) string {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}

	if id, ok := s.X.(*ast.Ident); ok {
		return id.Name + "." + s.Sel.Name
	}

	return "." + s.Sel.Name
}

func isNow(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && called(call) == "time.Now"
}

// isElapsed reports whether an expression is a time since or until a moment, or a variable or a method of one.
func isElapsed(e ast.Expr, measured map[string]bool) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return measured[e.Name]
	case *ast.CallExpr:
		if name := called(e); name == "time.Since" || name == "time.Until" {
			return true
		}
		s, ok := e.Fun.(*ast.SelectorExpr)
		return ok && isElapsed(s.X, measured)
	case *ast.BinaryExpr:
		return !isComparison(e.Op) && (isElapsed(e.X, measured) || isElapsed(e.Y, measured))
	}

	return false
}

func isComparison(op token.Token) bool {
	return slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ, token.EQL, token.NEQ}, op)
}
