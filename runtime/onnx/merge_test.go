package onnx_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	_ "promptfed/runtime/ops"
	"promptfed/runtime/ort"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// Parts with the same names, and a subgraph that reads outer values, still compute the same: here x -> 2x -> (2x > 1 ?
// 2x+3 : 2x) -> 4(...), by hand.
func TestMerge(t *testing.T) {
	times := func(k float64) *onnx.ModelProto {
		m := orttest.Model(t, graph.Output{Name: "y", Node: graph.New().Input("x", graph.Float,
			graph.Static(1)).MulScalar(k)})
		return m
	}
	middle := times(1)
	value := middle.Graph.Input[0]
	branch := func(op string, in ...string) *onnx.GraphProto {
		out := proto.Clone(value).(*onnx.ValueInfoProto)
		out.Name = "y"
		return &onnx.GraphProto{Name: op, Output: []*onnx.ValueInfoProto{out}, Node: []*onnx.NodeProto{{OpType: op,
			Input: in, Output: []string{"y"}}}}
	}
	number := func(name string, v float32) *onnx.TensorProto {
		return &onnx.TensorProto{Name: name, DataType: int32(graph.Float), Dims: []int64{1}, FloatData: []float32{v}}
	}
	middle.Graph.Initializer = []*onnx.TensorProto{number("one", 1), number("three", 3)}
	middle.Graph.Node = []*onnx.NodeProto{
		{OpType: "Greater", Input: []string{"x", "one"}, Output: []string{"large"}},
		{OpType: "If", Name: "choice", Input: []string{"large"}, Output: []string{"z"},
			Attribute: []*onnx.AttributeProto{
				{Name: "then_branch", Type: onnx.AttributeProto_GRAPH, G: branch("Add", "x", "three")},
				{Name: "else_branch", Type: onnx.AttributeProto_GRAPH, G: branch("Identity", "x")}}},
		{OpType: "Identity", Input: []string{"z"}, Output: []string{"y"}},
	}
	m := onnx.Merge(onnx.Part{Name: "a", Model: times(2)}, onnx.Part{Name: "b", Model: middle,
		Feeds: map[string]string{"x": "a/y"}}, onnx.Part{Name: "c", Model: times(4),
		Feeds: map[string]string{"x": "b/y"}})
	for x, want := range map[float32]float32{3: 36, 0.25: 2} {
		out := orttest.RunOnce(t, m, ort.Options{}, tensor.Map{"x": tensor.Of([]float32{x}, 1)})
		if got := out["y"].Data[0]; got != want {
			t.Errorf("%v gives %v, expected %v", x, got, want)
		}
	}
}
