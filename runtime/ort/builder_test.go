package ort_test

import (
	"encoding/binary"
	"math"
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
	"promptfed/runtime/ort"
)

// builder builds ModelProtos by hand, so that these tests need only the schema.
type builder struct{ onnx.GraphProto }

type dims []any // int: fixed size; string: symbol

func info(name string, t onnx.TensorProto_DataType, shape dims) *onnx.ValueInfoProto {
	tt := &onnx.TypeProto_Tensor{ElemType: int32(t)}
	if shape != nil {
		tt.Shape = &onnx.TensorShapeProto{}
	}
	for _, d := range shape {
		dim := &onnx.TensorShapeProto_Dimension{}
		switch d := d.(type) {
		case int:
			dim.Value = &onnx.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}
		case string:
			dim.Value = &onnx.TensorShapeProto_Dimension_DimParam{DimParam: d}
		}
		tt.Shape.Dim = append(tt.Shape.Dim, dim)
	}
	return &onnx.ValueInfoProto{Name: name, Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{TensorType: tt}}}
}

func (b *builder) in(name string, t onnx.TensorProto_DataType, shape dims) *builder {
	b.Input = append(b.Input, info(name, t, shape))
	return b
}

func (b *builder) out(name string, t onnx.TensorProto_DataType, shape dims) *builder {
	b.Output = append(b.Output, info(name, t, shape))
	return b
}

func (b *builder) node(op string, in []string, out string, attrs ...*onnx.AttributeProto) *builder {
	b.Node = append(b.Node, &onnx.NodeProto{OpType: op, Input: in, Output: []string{out}, Attribute: attrs})
	return b
}

func intAttr(name string, v int64) *onnx.AttributeProto {
	return &onnx.AttributeProto{Name: name, Type: onnx.AttributeProto_INT, I: v}
}

func (b *builder) constant(name string, data []float32, shape ...int64) *builder {
	b.Initializer = append(b.Initializer, &onnx.TensorProto{Name: name, Dims: shape,
		DataType: int32(onnx.TensorProto_FLOAT), RawData: bytesOf(data)})
	return b
}

func (b *builder) external(name, file string, offset, length int, shape ...int64) *builder {
	t := &onnx.TensorProto{Name: name, Dims: shape, DataType: int32(onnx.TensorProto_FLOAT)}
	onnx.SetExternal(t, onnx.External{File: file, Offset: int64(offset), Length: int64(length)})
	b.Initializer = append(b.Initializer, t)
	return b
}

func (b *builder) model(t testing.TB) *onnx.ModelProto {
	t.Helper()
	if b.Name == "" {
		b.Name = "test"
	}
	return &onnx.ModelProto{IrVersion: 10, Graph: &b.GraphProto, OpsetImport: []*onnx.OperatorSetIdProto{{Version: 18}}}
}

func bytesOf(data []float32) []byte {
	raw := make([]byte, 0, 4*len(data))
	for _, v := range data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}

// open compiles a model and closes it with the test. A missing library fails the test with the library's own message.
func open(t testing.TB, model *onnx.ModelProto, o ort.Options) *ort.Session {
	t.Helper()
	o.Bind = o.Bind || bindAll
	s, err := ort.NewSession(model, o)
	goldentest.NoError(t, err)
	t.Cleanup(func() { goldentest.NoError(t, s.Close()) })
	return s
}

const (
	f32 = onnx.TensorProto_FLOAT
	f16 = onnx.TensorProto_FLOAT16
	b16 = onnx.TensorProto_BFLOAT16
	f64 = onnx.TensorProto_DOUBLE
	i64 = onnx.TensorProto_INT64
	i32 = onnx.TensorProto_INT32
	u8  = onnx.TensorProto_UINT8
	u64 = onnx.TensorProto_UINT64
	tf  = onnx.TensorProto_BOOL
)

// linear is y = x W with x [B,2], W = [[1,2,3],[4,5,6]], y [B,3].
func linear(t testing.TB) *onnx.ModelProto {
	b := (&builder{}).in("x", f32, dims{"B", 2}).constant("W", []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	return b.node("MatMul", []string{"x", "W"}, "y").out("y", f32, dims{"B", 3}).model(t)
}
