package graph_test

import (
	"slices"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// halve divides x by d until no entry is above 1.
func halve(state []graph.Node) ([]graph.Node, graph.Node) {
	x, d := state[0], state[1]
	x = x.Div(d)
	return []graph.Node{x, d}, x.Sum(0).Greater(x.ScalarLike(1))
}

func value(t *testing.T, feed tensor.Map, n graph.Node) []float32 {
	t.Helper()
	model := orttest.Model(t, graph.Output{Name: "y", Node: n})
	return orttest.Run(t, model, "", feed)["y"].Data
}

// By hand: 6+2 is halved to 4, 2 and 1, which is not above 1, so three iterations; two iterations leave 1.5+0.5. The
// first iteration always runs: 0.5 becomes 0.25.
func TestWhileStops(t *testing.T) {
	for _, c := range []struct {
		most     int
		in, want []float32
	}{
		{100, []float32{6, 2}, []float32{.75, .25}}, {2, []float32{6, 2}, []float32{1.5, .5}}, {0, []float32{6, 2},
			[]float32{6, 2}},
		{100, []float32{.25, .25}, []float32{.125, .125}},
	} {
		g := graph.New()
		x := g.Input("x", graph.Float, graph.Shape{graph.Sym("N")})
		y := graph.While(c.most, g.Scalar(1), halve, x, g.Scalar(2))[0]
		if y.Shape().String() != x.Shape().String() || y.DType() != graph.Float {
			t.Errorf("the result is %v", y)
		}
		if got := value(t, tensor.Map{"x": tensor.Of(c.in, 2)}, y); !slices.Equal(got, c.want) {
			t.Errorf("%v at most %d times gives %v, want %v", c.in, c.most, got, c.want)
		}
	}
}

// Two loops with one body, another body, and the first one again: 8 by 2 is 1, 8 by 3 is 8/9, 8 by 4 is 0.5.
func TestWhileIsInternedAndRewritten(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Static(1))
	later := g.Placeholder(part{}, graph.Float, []int{})
	a, b := graph.While(9, g.Scalar(1), halve, x, g.Scalar(2))[0], graph.While(9, g.Scalar(1), halve, x, later)[0]
	if graph.While(9, g.Scalar(1), halve, x, g.Scalar(2))[0] != a {
		t.Error("the same loop is there twice")
	}
	both := graph.Transform([]graph.Node{graph.Concat(0, a, b)}, func(op *graph.Op, _ []graph.Node) []graph.Node {
		if op.Placeholder() != nil {
			return []graph.Node{g.Scalar(4)}
		}
		return nil
	})[0]
	if got := value(t, tensor.Map{"x": tensor.Of([]float32{8}, 1)}, both); !slices.Equal(got, []float32{1, 0.5}) {
		t.Errorf("%v, want 1 and 0.5", got)
	}
	d := orttest.Gradients(t, a.Mul(x).Sum(), x)
	if got := value(t, tensor.Map{"x": tensor.Of([]float32{8}, 1)}, d[0].Add(x.MulScalar(0))); got[0] != 1 {
		t.Errorf("the gradient of x times a loop is %v, want the loop's 1", got)
	}
}

// A loop that is not of While's form, though its body has names like While's, stays as it is or is an error.
func TestFixSizesOfForeignLoop(t *testing.T) {
	for i, alter := range []func(loop *onnx.NodeProto, body *onnx.GraphProto){
		func(loop *onnx.NodeProto, _ *onnx.GraphProto) { loop.Input[0] = "" },
		func(loop *onnx.NodeProto, _ *onnx.GraphProto) { loop.Input[2] = "" },
		func(loop *onnx.NodeProto, _ *onnx.GraphProto) { loop.Output = append(loop.Output, "a", "b") },
		func(_ *onnx.NodeProto, body *onnx.GraphProto) { body.Output = nil },
		func(_ *onnx.NodeProto, body *onnx.GraphProto) { body.Output = append(body.Output, body.Output...) },
	} {
		g := graph.New()
		y := graph.While(9, g.Scalar(1), halve, g.Input("x", graph.Float, graph.Static(1)), g.Scalar(2))[0]
		m := orttest.Model(t, graph.Output{Name: "y", Node: y})
		isLoop := func(n *onnx.NodeProto) bool { return n.OpType == "Loop" }
		at := slices.IndexFunc(m.Graph.Node, isLoop)
		alter(m.Graph.Node[at], m.Graph.Node[at].Attribute[0].G)
		fixed, err := graph.FixSizes(m, nil)
		if err == nil && !slices.ContainsFunc(fixed.Graph.Node, isLoop) {
			t.Errorf("%d: the loop is written out", i)
		}
	}
}

func TestWhileErrors(t *testing.T) {
	for want, body := range map[string]func(s []graph.Node) ([]graph.Node, graph.Node){
		"1 states became 2": func(s []graph.Node) ([]graph.Node, graph.Node) {
			return append(s, s[0]), s[0].Greater(s[0])
		},
		"and becomes": func(s []graph.Node) ([]graph.Node, graph.Node) {
			return []graph.Node{s[0].Sum()}, s[0].Greater(s[0])
		},
		"com.microsoft": func(s []graph.Node) ([]graph.Node, graph.Node) {
			return []graph.Node{s[0].MatMulT(s[0])}, s[0].Greater(s[0])
		},
		"has 1 elements": func(s []graph.Node) ([]graph.Node, graph.Node) {
			return []graph.Node{s[0].Reshape(2)}, s[0]
		},
	} {
		g := graph.New()
		on, x := g.Const(tensor.Of([]float32{1}, 1, 1)), g.Input("x", graph.Float, graph.Static(1, 1))
		out := graph.While(3, on, body, x)
		_, err := graph.Model(graph.Output{Name: "y", Node: out[0]})
		goldentest.WantError(t, err, want)
	}
}
