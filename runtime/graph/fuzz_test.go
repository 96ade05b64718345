package graph_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/grad"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// FuzzRead reads arbitrary bytes as a model. A model that it accepts must be written, read again and differentiated
// without a panic.
func FuzzRead(f *testing.F) {
	for _, m := range seeds() {
		b, err := proto.Marshal(m)
		goldentest.NoError(f, err)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := graph.Read(b)
		if err != nil {
			return
		}
		onnx.HasExternal(m.Proto)
		written, err := m.Model(m.Outputs...)
		if err != nil {
			return
		}
		out, err := onnx.Marshal(written)
		if err != nil {
			return
		}
		if _, err := graph.Read(out); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		var outputs, wrt []string
		for _, o := range m.Outputs {
			if graph.Differentiable(o.Node.DType()) && !slices.Contains(outputs, o.Name) {
				outputs = append(outputs, o.Name)
			}
		}
		for _, in := range m.Inputs() {
			if graph.Differentiable(in.DType()) {
				wrt = append(wrt, in.Name())
			}
		}
		_, _ = grad.VJPModel(m, outputs, wrt)
	})
}

// seeds are one-node models: every known operator, with odd numbers of inputs, attributes and outputs.
func seeds() []*onnx.ModelProto {
	var out []*onnx.ModelProto
	for _, version := range []int64{9, 18} {
		for _, d := range graph.Defs() {
			for _, results := range [][]string{{"y"}, {"other", "y"}} {
				out = append(out, model(version, &onnx.NodeProto{Domain: d.Domain, OpType: d.Kind,
					Input: []string{"x", "i"}, Output: results,
					Attribute: []*onnx.AttributeProto{ints("axes", 1), ints("kernel_shape", 2, 2), integer("axis",
						-1)}}))
			}
		}
	}
	return out
}

func model(version int64, nodes ...*onnx.NodeProto) *onnx.ModelProto {
	return &onnx.ModelProto{IrVersion: 8, OpsetImport: []*onnx.OperatorSetIdProto{{Version: version}},
		Graph: &onnx.GraphProto{
			Name: "g", Node: nodes, Input: []*onnx.ValueInfoProto{info("x", onnx.TensorProto_FLOAT, 2, 3, 4)},
			Initializer: []*onnx.TensorProto{{Name: "i", Dims: []int64{2}, DataType: int32(onnx.TensorProto_INT64),
				Int64Data: []int64{1, 0}}},
			Output: []*onnx.ValueInfoProto{info("y", onnx.TensorProto_FLOAT)}}}
}

// read reads a model that must be valid.
func read(t testing.TB, m *onnx.ModelProto) *graph.File {
	t.Helper()
	f, err := graph.ReadModel(m)
	goldentest.NoError(t, err)
	return f
}

func info(name string, t onnx.TensorProto_DataType, dims ...int64) *onnx.ValueInfoProto {
	tt := &onnx.TypeProto_Tensor{ElemType: int32(t)}
	if dims != nil {
		tt.Shape = &onnx.TensorShapeProto{}
		for _, d := range dims {
			tt.Shape.Dim = append(tt.Shape.Dim,
				&onnx.TensorShapeProto_Dimension{Value: &onnx.TensorShapeProto_Dimension_DimValue{DimValue: d}})
		}
	}
	return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{TensorType: tt}}}
}

func ints(name string, v ...int64) *onnx.AttributeProto {
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INTS, Ints: v}
}

func integer(name string, v int64) *onnx.AttributeProto {
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INT, I: v}
}

// TestEveryOperatorSurvives applies every known operator to inputs of odd numbers, ranks and types, with attributes of
// odd types and values, in a twelfth of all combinations: errors are allowed, panics are not.
func TestEveryOperatorSurvives(t *testing.T) {
	inputs := [][]string{nil, {""}, {"x"}, {"", "x"}, {"x", ""}, {"x", "x"}, {"x", "i"}, {"i", "x"}, {"x", "i", "i",
		"i", "i"}, {"u", "u", "u", "u", "u"},
		{"x", "x", "x", "x", "x"}, {"s", "s", "s"}, {"i", "i", "i"}, {"x", "s", "e"}, {"x", "e", "e", "e"}, {"i"},
		{"i", ""}, {"i", "i", ""}, {"s"}, {"u"}, {"e"}, {"x", "n", "n", "i", "n"}, {"x4", "x4", "i"}}
	attributes := [][]*onnx.AttributeProto{nil}
	for _, name := range []string{"axis", "axes", "perm", "kernel_shape", "strides", "pads", "dilations", "group",
		"split", "value", "to",
		"equation", "keepdims", "batch_dims", "start", "end", "starts", "ends", "output_padding", "num_outputs"} {
		for _, a := range []*onnx.AttributeProto{integer(name, -1<<63), integer(name, 5), integer(name, 0), ints(name),
			ints(name, -1<<63, 1<<62), ints(name, 0, 0),
			ints(name, 1, 1), {Name: name, Type: onnx.AttributeProto_TENSOR},
			{Name: name, Type: onnx.AttributeProto_STRING, S: []byte("a,b->c")},
			{Name: name, Type: onnx.AttributeProto_TENSOR, T: &onnx.TensorProto{Dims: []int64{-1, 1 << 40, 1 << 40},
				DataType: 7}}} {
			attributes = append(attributes, []*onnx.AttributeProto{a, ints("kernel_shape", 2, 2)})
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	for _, version := range []int64{8, 18} {
		for _, d := range graph.Defs() {
			for _, in := range inputs {
				for i, at := range attributes {
					if random.IntN(12) > 0 && i > 0 {
						continue
					}
					m := model(version, &onnx.NodeProto{Domain: d.Domain, OpType: d.Kind, Input: in,
						Output: []string{"y", "z", "v", "w"}[:2+i%3], Attribute: at})
					m.Graph.Initializer = append(m.Graph.Initializer,
						&onnx.TensorProto{Name: "s", DataType: 7, Int64Data: []int64{-7}}, &onnx.TensorProto{Name: "e",
							Dims: []int64{0}, DataType: 7},
						&onnx.TensorProto{Name: "n", Dims: []int64{2}, DataType: 7, Int64Data: []int64{-1 << 63,
							1<<63 - 1}})
					m.Graph.Input = append(m.Graph.Input, info("u", onnx.TensorProto_FLOAT),
						info("x4", onnx.TensorProto_FLOAT, 1, 2, 0, 1<<40))
					f, err := graph.ReadModel(m)
					if err == nil {
						_, _ = grad.VJPModel(f, []string{"y"}, []string{"x"})
					}
				}
			}
		}
	}
}
