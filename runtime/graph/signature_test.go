package graph

import (
	"testing"

	"promptfed/runtime/tensor"
)

// Graphs have one signature if they compute the same, whatever else was built beside; anything that changes the model
// or its gradients changes it.
func TestSignature(t *testing.T) {
	build := func(of func(g *Graph, x Node) Node) [32]byte {
		g := New()
		sum, err := Signature(Output{"y", of(g, g.Input("x", Float, Static(2, 3)))})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	rows := func(last float32) *tensor.Tensor { return tensor.Of([]float32{1, 2, last}, 3) }
	plain := func(g *Graph, x Node) Node { return x.Mul(g.Const(rows(3))).Sum(-1) }
	first := build(plain)
	if build(plain) != first {
		t.Error("the same graph has two signatures")
	}
	if build(func(g *Graph, x Node) Node { x.Exp().Log(); return plain(g, x) }) != first {
		t.Error("operators that nothing uses change the signature")
	}
	for name, of := range map[string]func(g *Graph, x Node) Node{
		"a constant":      func(g *Graph, x Node) Node { return x.Mul(g.Const(rows(4))).Sum(-1) },
		"an axis":         func(g *Graph, x Node) Node { return x.Mul(g.Const(rows(3))).Sum(0) },
		"an operator":     func(g *Graph, x Node) Node { return x.Add(g.Const(rows(3))).Sum(-1) },
		"a stop":          func(g *Graph, x Node) Node { return x.Detach().Mul(g.Const(rows(3))).Sum(-1) },
		"an input's name": func(g *Graph, x Node) Node { return plain(g, g.Input("z", Float, Static(2, 3))) },
		"a shape":         func(g *Graph, x Node) Node { return plain(g, g.Input("x2", Float, Static(4, 3))) },
		"a placeholder": func(g *Graph, x Node) Node {
			return g.Defer("text", Float, []int{2}, Attrs{"after": 1},
				x)
		},
		"an attribute": func(g *Graph, x Node) Node {
			return g.Defer("text", Float, []int{2}, Attrs{"after": 2},
				x)
		},
	} {
		if build(of) == first {
			t.Errorf("%s does not change the signature", name)
		}
	}
	if _, err := Signature(); err == nil {
		t.Error("nothing has a signature")
	}
}
