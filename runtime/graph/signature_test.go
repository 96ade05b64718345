package graph_test

import (
	"math"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// part is a value of placeholders.
type part struct {
	After int
	On    graph.Node
}

// Graphs have one signature if they compute the same, whatever else was built beside; anything that changes the model
// or its gradients changes it.
func TestSignature(t *testing.T) {
	build := func(build func(x graph.Node) graph.Node) [32]byte {
		g := graph.New()
		sum, err := graph.Signature(graph.Output{Name: "y", Node: build(g.Input("x", graph.Float, graph.Static(2, 3)))})
		goldentest.NoError(t, err)
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
	for name, built := range map[string]func(x graph.Node) graph.Node{
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
			return x.Graph().Placeholder(part{After: 1, On: x}, graph.Float, []int{2})
		},
		"a field of a placeholder": func(x graph.Node) graph.Node {
			return x.Graph().Placeholder(part{After: 2, On: x}, graph.Float, []int{2})
		},
	} {
		if build(built) == first {
			t.Errorf("%s does not change the signature", name)
		}
	}
	if _, err := graph.Signature(); err == nil {
		t.Error("nothing has a signature")
	}
}

// Expressions that differ in anything at all are two nodes of one graph and have two signatures: numbers that compare
// as equal (-0 and 0) or as unequal to themselves (NaN), a number and a count of the same value, what is left out and
// what is not, places in files, symbols, the operator set. The same expression built twice is one node.
func TestAnyDifferenceIsOne(t *testing.T) {
	zero, nan := float32(math.Copysign(0, -1)), math.Float32frombits(0x7fc00001)
	row := func(v ...float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
	weight := func(file string, offset, length int64, dims ...int) func(x graph.Node) graph.Node {
		return func(x graph.Node) graph.Node {
			at := graph.External{File: file, Offset: offset, Length: length}
			return x.Graph().Weight("w", graph.Float, at, dims...)
		}
	}
	constant := func(c *tensor.Tensor) func(x graph.Node) graph.Node {
		return func(x graph.Node) graph.Node { return x.Graph().Const(c) }
	}
	apply := func(kind string, a graph.Attrs, in ...int) func(x graph.Node) graph.Node {
		return func(x graph.Node) graph.Node {
			list := make([]graph.Node, len(in))
			for i, v := range in {
				if v >= 0 {
					list[i] = x.Graph().Scalar(float64(v))
				}
			}
			return x.Graph().Apply("", kind, a, append([]graph.Node{x}, list...)...)
		}
	}
	odd := func(domain, kind string, a graph.Attrs) func(x graph.Node) graph.Node {
		return func(x graph.Node) graph.Node { return x.Graph().Apply(domain, kind, a, x) }
	}
	input := func(name string, d graph.DType, s ...graph.Dim) func(x graph.Node) graph.Node {
		return func(x graph.Node) graph.Node { return x.Graph().Input(name, d, s) }
	}
	inf := row(float32(math.Inf(1)))
	list := []func(x graph.Node) graph.Node{
		constant(row(0)), constant(row(zero)), constant(row(nan)), constant(row(math.Float32frombits(0x7fc00002))),
		constant(inf), constant(tensor.OfInts([]int64{0}, 1)), constant(tensor.Of([]float32{0}, 1, 1)),
		constant(tensor.Scalar(0)), constant(tensor.OfInts([]int64{0})),
		constant(tensor.New(1 << 15)), constant(tensor.New(1<<14, 2)),
		constant(tensor.OfInts(make([]int64, 1<<14), 1<<14)),
		weight("w", 8, 24, 2, 3), weight("w", 8, 24, 3, 2), weight("w", 12, 24, 2, 3), weight("v", 8, 24, 2, 3),
		weight("w@8", 8, 24, 2, 3),
		apply("Clip", nil, 1), apply("Clip", nil, -1, 1), apply("Clip", nil, 1, 1), apply("Clip", nil, 0, 1),
		odd("", "LeakyRelu", graph.Attrs{"alpha": graph.Attr(float32(0))}),
		odd("", "LeakyRelu", graph.Attrs{"alpha": graph.Attr(zero)}), odd("", "LeakyRelu", nil),
		odd("a", "b c", nil), odd("a b", "c", nil), odd("a:b", "c", nil), odd("a", "b:c", nil),
		odd("a", "k", graph.Attrs{"n": graph.Attr(1)}), odd("a", "k", graph.Attrs{"n": graph.Attr(float32(1))}),
		odd("a", "k", graph.Attrs{"n": graph.Attr("1")}), odd("a", "k", graph.Attrs{"n": graph.Attr([]int{1})}),
		odd("a", "k", graph.Attrs{"n": graph.Attr([]float32{1})}), odd("a", "k", graph.Attrs{"n": graph.Attr(0)}),
		odd("a", "k", graph.Attrs{"n": graph.Attr(""), "m": graph.Attr("")}),
		odd("a", "k", graph.Attrs{"m": graph.Attr("\" n=\"")}), odd("a", "k", graph.Attrs{"m=": graph.Attr("")}),
		input("p", graph.Float, graph.StaticDim(2)), input("q", graph.Float, graph.StaticDim(2)),
		input("r", graph.Int64, graph.StaticDim(2)), input("s", graph.Float, graph.Sym("B")),
		input("u", graph.Float, graph.Sym("C")), input("v", graph.Float, graph.Dim{N: 2, Sym: "B"}),
		input("w", graph.Float),
	}
	nodes, sums := map[graph.Node]int{}, map[[32]byte]int{}
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(2, 3))
	for i, given := range list {
		n := given(x)
		if err := g.Err(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if given(x) != n {
			t.Errorf("%d: built twice, it is two nodes", i)
		}
		if k, known := nodes[n]; known {
			t.Errorf("%d and %d are one node", k, i)
		}
		sum, err := graph.Signature(graph.Output{Name: "y", Node: n})
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if k, known := sums[sum]; known {
			t.Errorf("%d and %d have one signature", k, i)
		}
		nodes[n], sums[sum] = i, i
	}
	// The same operators in a younger operator set are another model.
	younger := graph.New()
	n := younger.Input("x", graph.Float, graph.Static(2, 3))
	younger.Apply("", "Gelu", nil, n) // of operator set 20
	old := graph.New()
	a, err := graph.Signature(graph.Output{Name: "y", Node: old.Input("x", graph.Float, graph.Static(2, 3)).Exp()})
	b, err2 := graph.Signature(graph.Output{Name: "y", Node: n.Exp()})
	if err != nil || err2 != nil || a == b {
		t.Errorf("one signature for two operator sets: %v %v", err, err2)
	}
}
