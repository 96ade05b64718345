package inference

import (
	"context"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ops"
	"promptfed/runtime/ort"
	"promptfed/runtime/tensor"
)

// run compiles a model without optimisation and runs it.
func run(t *testing.T, model *onnx.ModelProto, in tensor.Map) tensor.Map {
	t.Helper()
	out, err := ort.RunOnce(context.Background(), model, ort.Options{OptLevel: ort.OptNone}, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ONNX Runtime's own operators compute the same as their standard forms.
func TestStandard(t *testing.T) {
	g := graph.New()
	a, b := g.Input("a", graph.Float, graph.Static(2, 3, 4)), g.Input("b", graph.Float, graph.Static(2, 5, 4))
	fused := func(attrs graph.Attrs, x, y graph.Node) graph.Node {
		return g.Apply(graph.Microsoft, "FusedMatMul", attrs, x, y)
	}
	roots := []graph.Node{
		// [2,3,5]
		fused(graph.Attrs{"transB": graph.Attr(1), "alpha": graph.Attr(float32(0.5))}, a, b),
		// [2,4,4]
		fused(graph.Attrs{"transA": graph.Attr(1)}, a, a),
		// [2,4,4]
		fused(graph.Attrs{"transA": graph.Attr(1), "transB": graph.Attr(1)}, a, b.Slice(1, 0, 4).Slice(2, 0, 3)),
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
	plain := encode(ops.Standard(roots))
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
