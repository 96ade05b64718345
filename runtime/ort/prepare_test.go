package ort

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

func seedModel(change func(*onnx.GraphProto)) []byte {
	value := func(name string, typ onnx.TensorProto_DataType) *onnx.ValueInfoProto {
		return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{
			TensorType: &onnx.TypeProto_Tensor{ElemType: int32(typ)}}}}
	}
	g := &onnx.GraphProto{Name: "seed", Input: []*onnx.ValueInfoProto{value("x", onnx.TensorProto_FLOAT16)},
		Output: []*onnx.ValueInfoProto{value("y", onnx.TensorProto_BOOL)},
		Node: []*onnx.NodeProto{{OpType: "Cast", Input: []string{"x"}, Output: []string{"y"},
			Attribute: []*onnx.AttributeProto{{Name: "to", Type: onnx.AttributeProto_INT, I: 9}}}}}
	change(g)
	m, err := proto.Marshal(&onnx.ModelProto{IrVersion: 10, Graph: g,
		OpsetImport: []*onnx.OperatorSetIdProto{{Version: 18}}})
	if err != nil {
		panic(err)
	}
	return m
}

// For arbitrary bytes, prepare returns an error or a program whose inputs and outputs are float32 and int64, and never
// panics. The folder of weights is empty, so no model may reach a file.
func FuzzPrepare(f *testing.F) {
	f.Add(seedModel(func(*onnx.GraphProto) {}))
	f.Add(seedModel(func(g *onnx.GraphProto) { g.Output = nil }))
	f.Add(seedModel(func(g *onnx.GraphProto) {
		w := &onnx.TensorProto{Name: "W"}
		onnx.SetExternal(w, onnx.External{File: "../w", Offset: 1<<63 - 1})
		g.Initializer = []*onnx.TensorProto{w}
	}))
	f.Add(seedModel(func(g *onnx.GraphProto) {
		g.Output[0].GetType().GetTensorType().Shape = &onnx.TensorShapeProto{Dim: []*onnx.TensorShapeProto_Dimension{
			{Value: &onnx.TensorShapeProto_Dimension_DimValue{DimValue: 1 << 62}},
			{Value: &onnx.TensorShapeProto_Dimension_DimValue{DimValue: 4}}}}
	}))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, model []byte) {
		m := &onnx.ModelProto{}
		if proto.Unmarshal(model, m) != nil {
			return
		}
		before := proto.Clone(m)
		p, err := prepare(m, Options{WeightsDir: dir})
		if !proto.Equal(before, m) {
			t.Fatal("the model was changed")
		}
		if err != nil {
			return
		}
		if err := proto.Unmarshal(p.model, m); err != nil {
			t.Fatalf("the adapted model cannot be read: %v", err)
		}
		for _, v := range m.GetGraph().GetOutput() {
			typ := onnx.TensorProto_DataType(v.GetType().GetTensorType().GetElemType())
			if typ != onnx.TensorProto_FLOAT && typ != onnx.TensorProto_INT64 {
				t.Errorf("output %q is still %s", v.GetName(), typ)
			}
		}
		for _, s := range p.slots() {
			if n := 1; s.fixed {
				for _, d := range s.shape {
					n *= d
				}
				if n < 0 || n > maxFixed {
					t.Errorf("an output of %d elements would be allocated before the run", n)
				}
			}
		}
		if len(p.results) != len(p.outputs) || len(p.native) != len(p.inputs) || p.weights != "" {
			t.Errorf("program %+v", p)
		}
	})
}

// The bound of outputs, which keeps a declaration from allocating memory, refuses no capture for large inputs: here the
// pixels of 1,024 images.
func TestLargeInputsAreFixed(t *testing.T) {
	pixels := []ValueInfo{{Shape: []Dim{{Size: 1024}, {Size: 3}, {Size: 224}, {Size: 224}}}}
	if p := (&program{inputs: pixels}); !p.fixedSizes() {
		t.Errorf("%v has no fixed size", pixels[0])
	}
}
