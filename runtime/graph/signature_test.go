package graph_test

import (
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Graphs have one signature if they compute the same, whatever else was built beside; anything that changes the model
// or its gradients changes it.
func TestSignature(t *testing.T) {
	build := func(of func(x graph.Node) graph.Node) [32]byte {
		g := graph.New()
		sum, err := graph.Signature(graph.Output{Name: "y", Node: of(g.Input("x", graph.Float, graph.Static(2, 3)))})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	rows := func(last float32) *tensor.Tensor { return tensor.Of([]float32{1, 2, last}, 3) }
	plain := func(x graph.Node) graph.Node { return x.Mul(x.Graph().Const(rows(3))).Sum(-1) }
	first := build(plain)
	if build(plain) != first {
		t.Error("the same graph has two signatures")
	}
	if build(func(x graph.Node) graph.Node { x.Exp().Log(); return plain(x) }) != first {
		t.Error("operators that nothing uses change the signature")
	}
	for name, of := range map[string]func(x graph.Node) graph.Node{
		"a constant":  func(x graph.Node) graph.Node { return x.Mul(x.Graph().Const(rows(4))).Sum(-1) },
		"an axis":     func(x graph.Node) graph.Node { return x.Mul(x.Graph().Const(rows(3))).Sum(0) },
		"an operator": func(x graph.Node) graph.Node { return x.Add(x.Graph().Const(rows(3))).Sum(-1) },
		"a stop":      func(x graph.Node) graph.Node { return x.Detach().Mul(x.Graph().Const(rows(3))).Sum(-1) },
		"an input's name": func(x graph.Node) graph.Node {
			return plain(x.Graph().Input("z", graph.Float, graph.Static(2, 3)))
		},
		"a shape": func(x graph.Node) graph.Node {
			return plain(x.Graph().Input("x2", graph.Float, graph.Static(4, 3)))
		},
		"a placeholder": func(x graph.Node) graph.Node {
			return x.Graph().Placeholder("text", graph.Float, []int{2}, graph.Attrs{"after": graph.Attr(1)},
				x)
		},
		"an attribute": func(x graph.Node) graph.Node {
			return x.Graph().Placeholder("text", graph.Float, []int{2}, graph.Attrs{"after": graph.Attr(2)},
				x)
		},
	} {
		if build(of) == first {
			t.Errorf("%s does not change the signature", name)
		}
	}
	if _, err := graph.Signature(); err == nil {
		t.Error("nothing has a signature")
	}
}
