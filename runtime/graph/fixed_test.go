package graph_test

import (
	"slices"
	"testing"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/onnx/onnxtest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// A graph of fixed sizes has no operator that reads a shape, and computes the same values, to the last bit: the mean
// over rows and its gradient's quotient, zeros and ones of a batch's shape, a range and a mask of rows, an input of
// which only the shape is read, a grid less a column, and a loop. Zeros of many elements are no literal.
func TestFixSizes(t *testing.T) {
	g := graph.New()
	x := g.Input("x", graph.Float, graph.Shape{graph.Sym("B"), graph.StaticDim(300)})
	y := g.Input("y", graph.Float, graph.Shape{graph.Sym("C")})
	op := func(kind string, in ...graph.Node) graph.Node { return g.Apply(graph.Standard, kind, nil, in...) }
	shape := x.ShapeOf()
	rows := shape.Slice(0, 0, 1)
	share := op("Div", op("Size", x).Cast(graph.Float), rows.Cast(graph.Float))
	zeros := op("ConstantOfShape", shape)
	numbers := op("Range", g.Scalar64(0), rows.Reshape(), g.Scalar64(1))
	mask := op("Less", numbers, op("Div", rows, g.Ints(2)))
	outputs := []graph.Output{{Name: "mean", Node: x.Mean(0)}, {Name: "share", Node: x.Mul(share)},
		{Name: "zeros", Node: x.Add(zeros)}, {Name: "numbers", Node: x.Add(numbers.Cast(graph.Float).Reshape(-1, 1))},
		{Name: "mask", Node: op("Where", mask.Reshape(-1, 1), x, zeros)}, {Name: "size", Node: op("Size", y)},
		{Name: "flat", Node: x.Reshape(-1)}, {Name: "expanded", Node: op("Expand", x.Slice(0, 0, 1), shape)},
		{Name: "loop", Node: graph.While(100, g.Scalar(1), halve, x.Sum(1), g.Scalar(2))[0]},
		{Name: "grid", Node: g.Const(tensor.Of([]float32{1, 2, 3, 4}, 2, 2)).Sub(
			g.Const(tensor.Of([]float32{10, 20}, 2, 1)))},
		{Name: "weight", Node: x.Add(g.Const(tensor.New(300)))}}
	if g.Err() != nil {
		t.Fatal(g.Err())
	}
	m := orttest.Model(t, outputs...)
	if sizes, _ := orttest.OffDevice(m); len(sizes) < 8 {
		t.Fatalf("the graph has %q only", sizes)
	}
	before := onnxtest.Marshal(t, m)
	for _, rows := range []int{1, 5, 8} {
		in := tensor.Map{"x": tensor.New(rows, 300), "y": tensor.New(7)}
		for i := range in["x"].Data {
			in["x"].Data[i] = float32(i) / 7
		}
		_, fixed := orttest.RunFixed(t, m, "", in)
		if sizes, kernels := orttest.OffDevice(fixed); len(sizes)+len(kernels) > 0 {
			t.Errorf("%d rows: it has %q and %q", rows, sizes, kernels)
		}
		for _, c := range fixed.Graph.Initializer {
			if n, _, _ := onnx.ByteSize(c); n > 1200 {
				t.Errorf("%d rows: %s has %d bytes", rows, c.Name, n)
			}
		}
		if len(fixed.Graph.Input) != 2 {
			t.Errorf("%d rows: it has %d inputs", rows, len(fixed.Graph.Input))
		}
	}
	if after, err := onnx.Marshal(m); err != nil || !slices.Equal(before, after) {
		t.Errorf("the model changes: %v", err)
	}
	open := m.Graph.Input[0].Type.GetTensorType().Shape.Dim[0] // for some exporters
	open.Value = &onnx.TensorShapeProto_Dimension_DimValue{DimValue: -1}
	if _, err := graph.FixSizes(m, map[string][]int{"x": {5, 300}}); err != nil {
		t.Error(err)
	}
	for _, shape := range [][]int{{5}, {5, 4}} {
		if _, err := graph.FixSizes(m, map[string][]int{"x": shape}); err == nil {
			t.Errorf("x may have shape %v", shape)
		}
	}
}

// A loop of more iterations stays a loop: 8 by 2 is 1 after three.
func TestFixSizesOfLongLoop(t *testing.T) {
	g := graph.New()
	n := graph.While(101, g.Scalar(1), halve, g.Input("x", graph.Float, graph.Shape{graph.Sym("N")}), g.Scalar(2))[0]
	m := orttest.Model(t, graph.Output{Name: "y", Node: n.MulScalar(3)})
	out, fixed := orttest.RunFixed(t, m, "", tensor.Map{"x": tensor.Of([]float32{8}, 1)})
	sizes, _ := orttest.OffDevice(fixed)
	if !slices.Equal(out["y"].Data, []float32{3}) || len(sizes) == 0 || sizes[0] != "Loop of int64 []" {
		t.Errorf("%v, %q", out["y"].Data, sizes)
	}
	if s := fixed.Graph.Output[0].Type.GetTensorType().Shape; len(s.GetDim()) != 1 || s.Dim[0].GetDimValue() != 1 {
		t.Errorf("the result has the shape %v", s)
	}
}
