package graph

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// Attribute is the value of one attribute of an operator: int, float32, string, []int, []float32, or, for tensors,
// graphs and lists of them, the message that ONNX has for it. Attr makes one; a zero Attribute is refused.
type Attribute struct{ v any }

// Attr is an attribute of one of the types that there are.
func Attr[T int | float32 | string | []int | []float32 | *onnx.AttributeProto](v T) Attribute {
	return Attribute{v}
}

// Attrs are the attributes of an operator by name.
type Attrs map[string]Attribute

// attributeTypes are the words of Def.Attrs.
var attributeTypes = map[string]onnx.AttributeProto_AttributeType{"int": onnx.AttributeProto_INT,
	"ints": onnx.AttributeProto_INTS, "float": onnx.AttributeProto_FLOAT, "floats": onnx.AttributeProto_FLOATS,
	"string": onnx.AttributeProto_STRING, "tensor": onnx.AttributeProto_TENSOR}

// Type is the type that ONNX has for the value, UNDEFINED for a zero Attribute.
func (a Attribute) Type() onnx.AttributeProto_AttributeType {
	switch x := a.v.(type) {
	case int:
		return onnx.AttributeProto_INT
	case float32:
		return onnx.AttributeProto_FLOAT
	case string:
		return onnx.AttributeProto_STRING
	case []int:
		return onnx.AttributeProto_INTS
	case []float32:
		return onnx.AttributeProto_FLOATS
	case *onnx.AttributeProto:
		return x.GetType()
	}
	return onnx.AttributeProto_UNDEFINED
}

// check refuses attributes without a value, and those of another type than the operator's definition names; names that
// the definition does not have are left to ONNX Runtime, which knows those of younger operator sets.
func (a Attrs) check(d *Def) error {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if a[name].v == nil {
			return fmt.Errorf("attribute %s has no value", name)
		}
		if d == nil || d.attrs == nil {
			continue
		}
		if have, want := a[name].Type(), d.attrs[name]; want != 0 && have != want {
			return fmt.Errorf("attribute %s is of type %v, not %v", name, have, want)
		}
	}
	return nil
}

func attribute[T any](a Attrs, name string, missing T) T {
	if v, ok := a[name].v.(T); ok {
		return v
	}
	return missing
}

// Int reads an integer attribute.
func (a Attrs) Int(name string, missing int) int { return attribute(a, name, missing) }

// Float reads a float attribute.
func (a Attrs) Float(name string, missing float32) float32 { return attribute(a, name, missing) }

// Str reads a string attribute.
func (a Attrs) Str(name, missing string) string { return attribute(a, name, missing) }

// Ints reads an integer list attribute.
func (a Attrs) Ints(name string) ([]int, bool) {
	v, ok := a[name].v.([]int)
	return v, ok
}

// Tensor reads a tensor attribute, nil where it is missing.
func (a Attrs) Tensor(name string) *onnx.TensorProto {
	return attribute[*onnx.AttributeProto](a, name, nil).GetT()
}

// proto is the attribute as a file holds it.
func (a Attribute) proto(name string) *onnx.AttributeProto {
	p := &onnx.AttributeProto{Name: name, Type: a.Type()}
	switch x := a.v.(type) {
	case int:
		p.I = int64(x)
	case float32:
		p.F = x
	case string:
		p.S = []byte(x)
	case []int:
		for _, i := range x {
			p.Ints = append(p.Ints, int64(i))
		}
	case []float32:
		p.Floats = x
	case *onnx.AttributeProto:
		p = proto.Clone(x).(*onnx.AttributeProto)
		p.Name = name
	}
	return p
}

func readAttrs(list []*onnx.AttributeProto) Attrs {
	a := Attrs{}
	for _, p := range list {
		switch p.Type {
		case onnx.AttributeProto_INT:
			a[p.Name] = Attr(int(p.I))
		case onnx.AttributeProto_FLOAT:
			a[p.Name] = Attr(p.F)
		case onnx.AttributeProto_STRING:
			a[p.Name] = Attr(string(p.S))
		case onnx.AttributeProto_INTS:
			a[p.Name] = Attr(toInts(p.Ints))
		case onnx.AttributeProto_FLOATS:
			a[p.Name] = Attr(p.Floats)
		default:
			a[p.Name] = Attr(p)
		}
	}
	return a
}
