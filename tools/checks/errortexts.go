package checks

import (
	"go/ast"
	"regexp"
	"strings"
)

// searches are the functions of strings, and the methods of a regular expression, that look for something in a text.
var searches = regexp.MustCompile(`\.(Contains|HasPrefix|HasSuffix|Cut|Trim|Index|LastIndex|Match|Find)`)

// ErrorTexts finds places where a Go file searches the text of an error: what an error is about is in its type.
func ErrorTexts(file string, source []byte) ([]string, error) {
	return inspect(file, source, func(n ast.Node, say sayAt) {
		call, ok := n.(*ast.CallExpr)
		if !ok || !searches.MatchString(called(call)) {
			return
		}
		for _, arg := range call.Args {
			if text, ok := ast.Unparen(arg).(*ast.CallExpr); ok && strings.HasSuffix(called(text), ".Error") {
				say(n, "%s searches the text of an error; give the error a type and use errors.As", called(call))
			}
		}
	})
}
