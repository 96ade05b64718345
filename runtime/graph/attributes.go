package graph

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
)

// Attribute is the value of one attribute of an operator (see Attr). A zero Attribute is an error.
type Attribute struct{ encoded *onnx.AttributeProto }

// Attrs are the attributes of an operator by name.
type Attrs map[string]Attribute

// Attr returns an attribute of one of ONNX's types: an integer, a number, a string, a list of integers or numbers, or,
// for tensors and graphs, the message itself.
func Attr[T int | float32 | float64 | string | []int | []float32 | *onnx.AttributeProto](v T) Attribute {
	switch value := any(v).(type) {
	case int:
		return Attribute{&onnx.AttributeProto{Type: onnx.AttributeProto_INT, I: int64(value)}}
	case float32:
		return Attribute{&onnx.AttributeProto{Type: onnx.AttributeProto_FLOAT, F: value}}
	case float64: // ONNX has float32 only
		return Attr(float32(value))
	case string:
		return Attribute{&onnx.AttributeProto{Type: onnx.AttributeProto_STRING, S: []byte(value)}}
	case []int:
		ints := convert.Slice(value, func(i int) int64 { return int64(i) })
		return Attribute{&onnx.AttributeProto{Type: onnx.AttributeProto_INTS, Ints: ints}}
	case []float32:
		return Attribute{&onnx.AttributeProto{Type: onnx.AttributeProto_FLOATS, Floats: value}}
	case *onnx.AttributeProto:
		return Attribute{value}
	}

	return Attribute{}
}

// attributeTypes are the type names in Def.Attrs.
var attributeTypes = map[string]onnx.AttributeProto_AttributeType{"int": onnx.AttributeProto_INT,
	"ints": onnx.AttributeProto_INTS, "float": onnx.AttributeProto_FLOAT, "floats": onnx.AttributeProto_FLOATS,
	"string": onnx.AttributeProto_STRING, "tensor": onnx.AttributeProto_TENSOR}

// check rejects attributes without a value, or of another type than in the operator's definition. It ignores attributes
// that the definition lacks, because ONNX Runtime may know them from later operator sets.
func (a Attrs) check(d *Def) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name].encoded == nil {
			return fmt.Errorf("attribute %s has no value", name)
		}
		if d == nil {
			continue
		}
		if have, want := a[name].encoded.Type, d.attrs[name]; want != 0 && have != want {
			return fmt.Errorf("attribute %s is of type %v, not %v", name, have, want)
		}
	}

	return nil
}

func (a Attrs) get(name string, t onnx.AttributeProto_AttributeType) *onnx.AttributeProto {
	if p := a[name].encoded; p.GetType() == t {
		return p
	}
	return nil
}

// Int reads an integer attribute.
func (a Attrs) Int(name string, missing int) int {
	if p := a.get(name, onnx.AttributeProto_INT); p != nil {
		return int(p.I)
	}
	return missing
}

// Float reads a float attribute. The default missing is rounded to float32, as in a file.
func (a Attrs) Float(name string, missing float64) float64 {
	if p := a.get(name, onnx.AttributeProto_FLOAT); p != nil {
		return float64(p.F)
	}
	return float64(float32(missing))
}

// Str reads a string attribute.
func (a Attrs) Str(name, missing string) string {
	if p := a.get(name, onnx.AttributeProto_STRING); p != nil {
		return string(p.S)
	}
	return missing
}

// Ints reads an integer list attribute.
func (a Attrs) Ints(name string) ([]int, bool) {
	if p := a.get(name, onnx.AttributeProto_INTS); p != nil {
		return toInts(p.Ints), true
	}
	return nil, false
}

// Tensor reads a tensor attribute, nil if it is missing.
func (a Attrs) Tensor(name string) *onnx.TensorProto {
	return a.get(name, onnx.AttributeProto_TENSOR).GetT()
}

func (a Attribute) proto(name string) *onnx.AttributeProto {
	p := proto.Clone(a.encoded).(*onnx.AttributeProto)
	p.Name, p.F = name, a.encoded.F // Clone makes 0 of -0
	return p
}

// key returns a string that is equal only for equal values.
func (a Attribute) key() string {
	if a.encoded == nil {
		return ""
	}

	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.proto(""))
	if err != nil { // a string that is not UTF-8: such a message equals only itself
		return fmt.Sprintf("%p", a.encoded)
	}

	return string(b)
}

func readAttrs(list []*onnx.AttributeProto) Attrs {
	a := Attrs{}
	for _, p := range list {
		a[p.Name] = Attribute{p}
	}
	return a
}
