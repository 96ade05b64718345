package checks

import (
	"go/ast"
	"regexp"
)

// takesApart are the functions that take a name with a separator apart.
var takesApart = regexp.MustCompile(`^strings\.((Has|Cut|Trim)(Prefix|Suffix)|Cut|Split.*)$`)

// ParsedNames finds places where a Go file takes a name apart: where an input of a graph comes from is in its type.
func ParsedNames(file string, source []byte) ([]string, error) {
	return inspect(file, source, func(n ast.Node, say sayAt) {
		if call, ok := n.(*ast.CallExpr); ok && takesApart.MatchString(called(call)) {
			say(n, "%s takes a name apart; use the fields of method.Input, or add the file to the list of this test",
				called(call))
		}
	})
}
