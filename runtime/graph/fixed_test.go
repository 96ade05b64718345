package graph_test

import (
	"slices"
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// A graph of fixed sizes has no operator that reads a shape, and computes the same values, to the last bit: the mean
// over rows and its gradient's quotient, zeros and ones of a batch's shape, a range and a mask of rows.
func TestFixSizes(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(3)})
	op := func(kind string, in ...graph.Node) graph.Node { return g.Apply(graph.Standard, kind, nil, in...) }
	shape := x.ShapeOf()
	rows := shape.Slice(0, 0, 1)
	share := op("Div", op("Size", x).Cast(graph.Float), rows.Cast(graph.Float))
	zeros := op("ConstantOfShape", shape)
	numbers := op("Range", g.Scalar64(0), rows.Reshape(), g.Scalar64(1))
	mask := op("Less", numbers, op("Div", rows, g.Ints(2)))
	outputs := []graph.Output{{Name: "mean", Node: x.Mean(0)}, {Name: "share", Node: x.Mul(share)},
		{Name: "zeros", Node: x.Add(zeros)}, {Name: "numbers", Node: x.Add(numbers.Cast(graph.Float).Reshape(-1, 1))},
		{Name: "mask", Node: op("Where", mask.Reshape(-1, 1), x, zeros)},
		{Name: "flat", Node: x.Reshape(-1)}, {Name: "expanded", Node: op("Expand", x.Slice(0, 0, 1), shape)}}
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	m, err := graph.Model(outputs...)
	if err != nil {
		t.Fatal(err)
	}
	if found := readsShapes(m); len(found) < 4 {
		t.Fatalf("the graph has %v only", found)
	}
	before, err := onnx.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{1, 5, 8} {
		fixed, err := graph.FixSizes(m, map[string][]int{"x": {rows, 3}})
		if err != nil {
			t.Fatal(err)
		}
		if found := readsShapes(fixed); len(found) > 0 {
			t.Errorf("%d rows: it has %v", rows, found)
		}
		in := tensor.New(rows, 3)
		for i := range in.Data {
			in.Data[i] = float32(i) / 7
		}
		want, got := runModel(t, m, in), runModel(t, fixed, in)
		for name, w := range want {
			if !slices.Equal(got[name].Shape, w.Shape) || !slices.Equal(got[name].Data, w.Data) {
				t.Errorf("%d rows: %s is %v, want %v", rows, name, got[name], w)
			}
		}
	}
	if after, err := onnx.Marshal(m); err != nil || !slices.Equal(before, after) {
		t.Errorf("the model changes: %v", err)
	}
	for _, shape := range [][]int{{5}, {5, 4}} {
		if _, err := graph.FixSizes(m, map[string][]int{"x": shape}); err == nil {
			t.Errorf("x may have shape %v", shape)
		}
	}
}

// readsShapes lists the operators of a model that read shapes, or compute with constants only. Expand is allowed: ONNX
// Runtime computes it once.
func readsShapes(m *onnx.ModelProto) (out []string) {
	constant := map[string]bool{}
	for _, t := range m.Graph.Initializer {
		constant[t.Name] = true
	}
	for _, n := range m.Graph.Node {
		reads := slices.Contains([]string{"Shape", "Size", "ConstantOfShape", "Range"}, n.OpType)
		if reads || n.OpType != "Expand" && !slices.ContainsFunc(n.Input, func(in string) bool {
			return in != "" && !constant[in]
		}) {
			out = append(out, n.OpType)
		}
	}
	return out
}

func runModel(t *testing.T, m *onnx.ModelProto, x *tensor.Tensor) tensor.Map {
	t.Helper()
	out, err := ort.RunOnce(t.Context(), m, ort.Options{}, tensor.Map{"x": x})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
