package experiment

import (
	"context"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// run compiles a model without optimisation and feeds it.
func run(t *testing.T, model *onnx.ModelProto, in tensor.Map) tensor.Map {
	t.Helper()
	out, err := ort.Once(context.Background(), model, ort.Options{OptLevel: ort.OptNone}, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What ONNX Runtime's own operators compute is what their standard forms do.
func TestStandard(t *testing.T) {
	g := graph.New()
	a, b := g.Input("a", graph.Float, graph.Static(2, 3, 4)), g.Input("b", graph.Float, graph.Static(2, 5, 4))
	fused := func(attrs graph.Attrs, x, y graph.Node) graph.Node {
		return g.Apply(graph.Microsoft, "FusedMatMul", attrs, x, y)
	}
	roots := []graph.Node{
		fused(graph.Attrs{"transB": graph.Attr(1), "alpha": graph.Attr(float32(0.5))}, a, b),                     // [2,3,5]
		fused(graph.Attrs{"transA": graph.Attr(1)}, a, a),                                                        // [2,4,4]
		fused(graph.Attrs{"transA": graph.Attr(1), "transB": graph.Attr(1)}, a, b.Slice(1, 0, 4).Slice(2, 0, 3)), // [2,4,4]
		fused(nil, b, a.T()), // [2,5,3]
		g.Apply(graph.Microsoft, "QuickGelu", graph.Attrs{"alpha": graph.Attr(float32(1))}, a),
		g.Apply(graph.Microsoft, "QuickGelu", nil, b),
	}
	encode := func(nodes []graph.Node) *onnx.ModelProto {
		out := make([]graph.Output, len(nodes))
		for i, n := range nodes {
			out[i] = graph.Output{Name: valueOf(i), Node: n}
		}
		model, err := graph.Model(out...)
		if err != nil {
			t.Fatal(err)
		}
		return model
	}
	plain := encode(standard(roots))
	if strings.Contains(plain.String(), graph.Microsoft) {
		t.Error("ONNX Runtime's own operators are left")
	}
	in := tensor.Map{"a": tensor.New(2, 3, 4), "b": tensor.New(2, 5, 4)}
	for i, x := range []*tensor.Tensor{in["a"], in["b"]} {
		for j := range x.Data {
			x.Data[j] = float32(math.Sin(float64(7*i + 3*j)))
		}
	}
	got, want := run(t, plain, in), run(t, encode(roots), in)
	for i := range roots {
		for j, v := range want[valueOf(i)].Data {
			if d := math.Abs(float64(v - got[valueOf(i)].Data[j])); !(d < 1e-6) {
				t.Errorf("%d: %v became %v", i, v, got[valueOf(i)].Data[j])
			}
		}
	}
}

func valueOf(i int) string { return string(rune('p' + i)) }

// Parts that use the same names, and a graph within an operator that reads from outside, still compute what they did:
// here x -> 2x -> (2x > 1 ? 2x+3 : 2x) -> 4(...), by hand.
func TestJoin(t *testing.T) {
	times := func(k float64) *onnx.ModelProto {
		m, err := graph.Model(graph.Output{Name: "y", Node: graph.New().Input("x", graph.Float,
			graph.Static(1)).Scale(k)})
		if err != nil {
			t.Fatal(err)
		}
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
	m := join(part{"a", times(2), nil}, part{"b", middle, map[string]string{"x": "a/y"}}, part{"c", times(4),
		map[string]string{"x": "b/y"}})
	for x, want := range map[float32]float32{3: 36, 0.25: 2} {
		if got := run(t, m, tensor.Map{"x": tensor.Of([]float32{x}, 1)})["y"].Data[0]; got != want {
			t.Errorf("%v gives %v, expected %v", x, got, want)
		}
	}
}

func FuzzClassifierClasses(f *testing.F) {
	for _, value := range []string{`["a","b"]`, `[]`, `{}`, `[1]`, ""} {
		b, err := proto.Marshal(&onnx.ModelProto{Graph: &onnx.GraphProto{},
			MetadataProps: []*onnx.StringStringEntryProto{{Key: MetaClasses, Value: value}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("PK\x03\x04"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := onnx.Unmarshal(b)
		if err != nil {
			return
		}
		classes, err := classifierClasses(m)
		if err == nil && len(classes) == 0 || err != nil && !strings.Contains(err.Error(), "promptfed export") {
			t.Errorf("%v: %v", classes, err)
		}
	})
}
