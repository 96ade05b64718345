package checks

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// mostMetrics is how many names of metrics a file may have.
const mostMetrics = 2

// MetricLists finds a second list of metrics: a Go file with the names of more than mostMetrics of them as string
// literals or JSON keys. A name may have _ for -, and may stand behind global/ or personal/.
func MetricLists(file string, source []byte, names []string) ([]string, error) {
	var found []string
	add := func(text string) {
		if _, behind, cut := strings.Cut(text, "/"); cut {
			text = behind
		}
		text = strings.ReplaceAll(text, "_", "-")
		if slices.Contains(names, text) && !slices.Contains(found, text) {
			found = append(found, text)
		}
	}

	_, err := inspect(file, source, func(n ast.Node, _ sayAt) {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil {
			_, rest, _ := strings.Cut(f.Tag.Value, `json:"`)
			key, _, _ := strings.Cut(rest, `"`)
			key, _, _ = strings.Cut(key, ",")
			add(key)
		}
		if literal, ok := text(n); ok {
			add(literal)
		}
	})

	if err != nil || len(found) <= mostMetrics {
		return nil, err
	}

	return []string{fmt.Sprintf("%s lists the metrics %s: read metrics.Definitions, or state in a definition what "+
		"this file needs", file, strings.Join(found, ", "))}, nil
}
