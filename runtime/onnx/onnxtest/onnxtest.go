package onnxtest

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/onnx"
)

// Marshal returns the bytes of a model.
func Marshal(t testing.TB, m *onnx.ModelProto) []byte {
	t.Helper()
	content, err := onnx.Marshal(m)
	goldentest.NoError(t, err)
	return content
}

// Hostile values for every number and every name of a model.
var (
	Numbers = []int64{0, -1, 1 << 31, 1 << 35, 1 << 62}
	Names   = []string{"", strings.Repeat("long", 5000), "../../etc/passwd", "a\nb\x00\x1b[31m"}
)

// Field is a number or a name in a model: a size, an attribute, an element type, a version, the name of a node or a
// value, or an integer in a constant.
type Field struct {
	Path string
	Text bool // a name; otherwise a number
	kind protoreflect.Kind
	old  protoreflect.Value
	put  func(protoreflect.Value)
}

// Number sets a number, in the width of its type, and returns a function that restores the old one.
func (f Field) Number(n int64) (undo func()) {
	switch f.kind {
	case protoreflect.Int32Kind:
		f.put(protoreflect.ValueOfInt32(int32(n)))
	case protoreflect.EnumKind:
		f.put(protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)))
	default:
		f.put(protoreflect.ValueOfInt64(n))
	}

	return func() { f.put(f.old) }
}

// Name sets a name, and returns a function that restores the old one.
func (f Field) Name(s string) (undo func()) {
	f.put(protoreflect.ValueOfString(s))
	return func() { f.put(f.old) }
}

// perList bounds the fields from one list of numbers or names.
const perList = 8

// Fields lists the fields of a model, in the order of the file.
func Fields(m *onnx.ModelProto) []Field { return fields(m.ProtoReflect(), "model") }

func fields(message protoreflect.Message, path string) (out []Field) {
	add := func(f protoreflect.FieldDescriptor, path string, old protoreflect.Value, put func(protoreflect.Value)) {
		switch f.Kind() {
		case protoreflect.Int64Kind, protoreflect.Int32Kind, protoreflect.EnumKind, protoreflect.StringKind:
			out = append(out, Field{path, f.Kind() == protoreflect.StringKind, f.Kind(), old, put})
		}
	}

	list := message.Descriptor().Fields()
	for i := range list.Len() {
		field := list.Get(i)
		if !message.Has(field) {
			continue
		}

		value, path := message.Get(field), path+"."+string(field.Name())
		switch {
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				out = append(out, fields(value.List().Get(i).Message(), fmt.Sprintf("%s[%d]", path, i))...)
			}
		case field.IsList():
			for i := range min(perList, value.List().Len()) {
				add(field, fmt.Sprintf("%s[%d]", path, i), value.List().Get(i), func(x protoreflect.Value) {
					value.List().Set(i, x)
				})
			}
		case field.Message() != nil:
			out = append(out, fields(value.Message(), path)...)
		default:
			add(field, path, value, func(x protoreflect.Value) { message.Set(field, x) })
		}
	}

	if t, ok := message.Interface().(*onnx.TensorProto); ok && t.DataType == int32(onnx.TensorProto_INT64) {
		for i := 0; i+8 <= min(8*perList, len(t.RawData)); i += 8 {
			at := t.RawData[i:]
			out = append(out, Field{fmt.Sprintf("%s.raw_data[%d]", path, i/8), false, protoreflect.Int64Kind,
				protoreflect.ValueOfInt64(int64(binary.LittleEndian.Uint64(at))),
				func(x protoreflect.Value) { binary.LittleEndian.PutUint64(at, uint64(x.Int())) }})
		}
	}

	return out
}
