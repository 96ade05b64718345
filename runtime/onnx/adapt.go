package onnx

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/convert"
)

// Adapted is a model whose inputs and outputs all are float32 or int64 and of known rank.
type Adapted struct {
	Model  *ModelProto
	Kept   []*ValueInfoProto // outputs of the original
	Inputs []string          // names of its inputs, in the original's order, without constants
	Values []string          // names of its outputs
	// Outputs is the place of each output in Kept.
	Outputs []AdaptedOutput
}

// AdaptedOutput is the place of an output in Adapted.Values. Shape is -1 unless the output was flattened.
type AdaptedOutput struct{ Value, Shape int }

// InterfaceType returns the type that carries values of type t through inputs and outputs of an adapted model: FLOAT
// for floating-point numbers, INT64 for integers and bool, UNDEFINED for types that are not numbers.
func InterfaceType(t TensorProto_DataType) TensorProto_DataType {
	switch t {
	case TensorProto_FLOAT, TensorProto_FLOAT16, TensorProto_BFLOAT16, TensorProto_DOUBLE:
		return TensorProto_FLOAT
	case TensorProto_BOOL, TensorProto_INT8, TensorProto_UINT8, TensorProto_INT16, TensorProto_UINT16,
		TensorProto_INT32, TensorProto_UINT32, TensorProto_INT64, TensorProto_UINT64:
		return TensorProto_INT64
	}

	return TensorProto_UNDEFINED
}

// Inputs returns the inputs of a graph without the constants that older files list among them as default values.
func Inputs(g *GraphProto) []*ValueInfoProto {
	constant := map[string]bool{}
	for _, t := range g.GetInitializer() {
		constant[t.Name] = true
	}
	return slices.DeleteFunc(slices.Clone(g.GetInput()), func(v *ValueInfoProto) bool { return constant[v.Name] })
}

// Adapt inserts conversions at the inputs and outputs of a model, and keeps only the named outputs, or all. All must be
// tensors of numbers (see InterfaceType). m is not changed.
func Adapt(m *ModelProto, outputs ...string) (*Adapted, error) {
	a := &Adapted{Model: ShallowCopy(m)}
	g := ShallowCopy(m.GetGraph())
	a.Model.Graph = g
	var err error
	if a.Kept, err = keep(g.Output, outputs); err != nil {
		return nil, err
	}

	a.inputs(g)
	a.outputs(g)
	return a, nil
}

func keep(list []*ValueInfoProto, names []string) ([]*ValueInfoProto, error) {
	if len(names) == 0 {
		return list, nil
	}

	var out []*ValueInfoProto
	for _, name := range names {
		i := slices.IndexFunc(list, func(v *ValueInfoProto) bool { return v.Name == name })
		if i < 0 {
			known := convert.Slice(list, func(v *ValueInfoProto) string { return v.Name })
			return nil, fmt.Errorf("no output %q to keep; it has %s", name, strings.Join(known, ", "))
		}
		out = append(out, list[i])
	}

	return out, nil
}

// adapterName returns the name of a converted value. No graph has such names.
func adapterName(what, name string) string { return "promptfed/" + what + "/" + name }

func (a *Adapted) inputs(graph *GraphProto) {
	var casts []*NodeProto
	graph.Input = slices.Clone(graph.Input)
	for _, v := range Inputs(graph) {
		name := v.Name
		from := TensorProto_DataType(v.GetType().GetTensorType().GetElemType())
		if t := InterfaceType(from); t != from {
			name = adapterName("input", v.Name)
			casts = append(casts, castNode(name, v.Name, from))
			graph.Input[slices.Index(graph.Input, v)] = retyped(v, name, t)
		}
		a.Inputs = append(a.Inputs, name)
	}

	graph.Node = append(casts, graph.Node...)
}

func (a *Adapted) outputs(graph *GraphProto) {
	graph.Node, graph.Initializer = slices.Clip(graph.Node), slices.Clip(graph.Initializer)
	graph.Output = nil
	for _, proto := range a.Kept {
		from := TensorProto_DataType(proto.GetType().GetTensorType().GetElemType())
		outside, name := InterfaceType(from), proto.Name
		at := AdaptedOutput{Value: len(graph.Output), Shape: -1}
		if outside != from {
			name = adapterName("output", proto.Name)
			graph.Node = append(graph.Node, castNode(proto.Name, name, outside))
		}

		switch {
		case proto.GetType().GetTensorType().GetShape() == nil:
			flat, shape := adapterName("flat", proto.Name), adapterName("shape", proto.Name)
			flatten(graph, name, flat, shape)
			graph.Output = append(graph.Output, vector(flat, outside), vector(shape, TensorProto_INT64))
			at.Shape = at.Value + 1
		case name != proto.Name:
			graph.Output = append(graph.Output, retyped(proto, name, outside))
		default:
			graph.Output = append(graph.Output, proto)
		}

		a.Outputs = append(a.Outputs, at)
	}

	for _, v := range graph.Output {
		a.Values = append(a.Values, v.Name)
	}
}

func castNode(from, to string, want TensorProto_DataType) *NodeProto {
	return &NodeProto{OpType: "Cast", Name: "promptfed/cast/" + from, Input: []string{from}, Output: []string{to},
		Attribute: []*AttributeProto{{Name: "to", Type: AttributeProto_INT, I: int64(want)}}}
}

func retyped(v *ValueInfoProto, name string, t TensorProto_DataType) *ValueInfoProto {
	return &ValueInfoProto{Name: name, Type: &TypeProto{Value: &TypeProto_TensorType{TensorType: &TypeProto_Tensor{
		ElemType: int32(t), Shape: v.GetType().GetTensorType().GetShape()}}}}
}

// flatten adds the shape of value, and its elements as a vector, which also represents values of rank 0.
func flatten(g *GraphProto, value, flat, shape string) {
	all := adapterName("all", value)
	g.Initializer = append(g.Initializer, &TensorProto{Name: all, Dims: []int64{1}, DataType: int32(TensorProto_INT64),
		Int64Data: []int64{-1}})
	g.Node = append(g.Node, &NodeProto{OpType: "Shape", Name: shape, Input: []string{value}, Output: []string{shape}},
		&NodeProto{OpType: "Reshape", Name: flat, Input: []string{value, all}, Output: []string{flat}})
}

func vector(name string, t TensorProto_DataType) *ValueInfoProto {
	return retyped(&ValueInfoProto{Type: &TypeProto{Value: &TypeProto_TensorType{TensorType: &TypeProto_Tensor{
		Shape: &TensorShapeProto{Dim: []*TensorShapeProto_Dimension{{}}}}}}}, name, t)
}
