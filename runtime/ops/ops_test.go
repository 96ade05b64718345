package ops_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"promptfed/runtime/convert"
	"promptfed/runtime/filetest"
	"promptfed/runtime/graph"
	"promptfed/runtime/ort/orttest"
)

// TestAttributesAreDeclared checks that every attribute that a rule reads, by type and name, is declared by an
// operator: undeclared ones would not be checked.
func TestAttributesAreDeclared(t *testing.T) {
	declared := convert.Slice(graph.Defs(), func(d *graph.Def) string { return d.Attrs })
	all := ", " + strings.Join(declared, ", ") + ","
	reads := regexp.MustCompile(`\b(?:Attrs|at)\.(Int|Ints|Float|Str|Tensor)\("(\w+)"`)
	words := map[string]string{"Int": "int", "Ints": "ints", "Float": "float", "Str": "string", "Tensor": "tensor"}
	files, _ := filepath.Glob("*.go")
	count := 0
	for _, f := range files {
		source := filetest.Read(t, f)
		for _, m := range reads.FindAllSubmatch(source, -1) {
			count++
			if want := string(m[2]) + " " + words[string(m[1])]; !strings.Contains(all, ", "+want+",") {
				t.Errorf("%s reads %q, which no operator declares", f, want)
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d attributes are read; there are more", count)
	}
}

// Operators of later operator sets raise the operator set of the graph: Gelu came with 20, a scale per channel of
// GroupNormalization with 21.
func TestYoungOperatorsRaiseTheOperatorSet(t *testing.T) {
	for want, build := range map[int64]func(x node) node{
		18: func(x node) node { return apply("Mish", nil, x) },
		20: func(x node) node { return apply("Gelu", nil, x) },
		21: func(x node) node {
			v := x.Graph().Input("v", graph.Float, graph.Static(6))
			return apply("GroupNormalization", attrs{"num_groups": graph.Attr(2)}, x, v, v)
		},
	} {
		x := graph.New().Input("x", graph.Float, graph.Static(1, 6, 4))
		m := orttest.Model(t, graph.Output{Name: "y", Node: build(x)})
		if got := m.OpsetImport[0].Version; got != want {
			t.Errorf("operator set %d, want %d", got, want)
		}
	}
}

func apply(kind string, at attrs, in ...node) node {
	return in[0].Graph().Apply(graph.Standard, kind, at, in...)
}
