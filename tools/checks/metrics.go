package checks

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// mostMetrics is how many names of metrics a file may have.
const mostMetrics = 2

// MetricLists finds a second list of metrics: a Go file with the names of more than mostMetrics of them as string
// literals or JSON keys. A name may have _ for -, and may stand behind global/ or personal/.
func MetricLists(file string, source []byte, names []string) ([]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil { // a tag is looked at below, its key alone
			_, rest, _ := strings.Cut(f.Tag.Value, `json:"`)
			key, _, _ := strings.Cut(rest, `"`)
			key, _, _ = strings.Cut(key, ",")
			found = add(found, names, key)
		}
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				found = add(found, names, text)
			}
		}
		return true
	})
	if len(found) <= mostMetrics {
		return nil, nil
	}
	return []string{fmt.Sprintf("%s lists the metrics %s: read metrics.Definitions, or state in a definition what "+
		"this file needs", file, strings.Join(found, ", "))}, nil
}

func add(found, names []string, text string) []string {
	_, behind, cut := strings.Cut(text, "/")
	if !cut {
		behind = text
	}
	behind = strings.ReplaceAll(behind, "_", "-")
	if slices.Contains(names, behind) && !slices.Contains(found, behind) {
		return append(found, behind)
	}
	return found
}
