package graph

import (
	"fmt"
	"reflect"

	"promptfed/runtime/onnx"
)

// Placeholder returns a node for a part of the computation that the compiler of the graph builds later, when it knows
// all placeholders. The compiler reads the value (Op.Placeholder) and replaces the node with Transform. A size of -1 in
// shape is the batch, Sym("B").
//
// value is a struct that describes the part. Its exported fields are nodes, numbers, strings and booleans, and structs,
// slices and maps of these; it has no other fields. Nodes in it are the inputs of the operator, in the order of fields.
func (g *Graph) Placeholder(value any, dtype DType, shape []int) Node {
	in := NodesOf(value)
	n := g.internal(placeholderDef, Attrs{"value": Attr(fmt.Sprintf("%#v", value)), "shape": Attr(shape),
		"dtype": Attr(int(dtype))}, in...)
	if !n.failed() {
		n.value.op.value = withNodes(value, in)
	}
	return n
}

// Placeholder returns what a placeholder stands for, with its present inputs; nil for any other operator.
func (o *Op) Placeholder() any {
	if o.def != placeholderDef {
		return nil
	}
	return o.value
}

// GoString returns the part of a placeholder's signature, which is its value in the syntax of Go, that belongs to a
// node: whether there is one. Which node it is follows from the inputs of the operator.
func (n Node) GoString() string { return fmt.Sprintf("graph.Node(%t)", n.OK()) }

// NodesOf lists the nodes in the fields of a value of Graph.Placeholder, without absent ones.
func NodesOf(value any) (out []Node) {
	mapNodes(reflect.ValueOf(value), func(n Node) Node {
		out = append(out, n)
		return n
	})
	return out
}

// withNodes returns a copy of a value that holds other nodes; NodesOf has their order.
func withNodes(value any, nodes []Node) any {
	return mapNodes(reflect.ValueOf(value), func(Node) (n Node) {
		n, nodes = nodes[0], nodes[1:]
		return n
	}).Interface()
}

// mapNodes copies a value and the slices in it, and replaces every node that is present.
func mapNodes(value reflect.Value, replace func(Node) Node) reflect.Value {
	out := reflect.New(value.Type()).Elem()
	out.Set(value)
	switch n, isNode := value.Interface().(Node); {
	case isNode && n.OK():
		out.Set(reflect.ValueOf(replace(n)))
	case isNode:
	case value.Kind() == reflect.Struct:
		for i := range value.NumField() {
			out.Field(i).Set(mapNodes(value.Field(i), replace))
		}
	case value.Kind() == reflect.Slice && !value.IsNil():
		out.Set(reflect.MakeSlice(value.Type(), value.Len(), value.Len()))
		for i := range value.Len() {
			out.Index(i).Set(mapNodes(value.Index(i), replace))
		}
	}

	return out
}

func inferPlaceholder(o *Inference) error {
	s, _ := o.Attrs.Ints("shape")
	o.SetType(0, DType(o.Attrs.Int("dtype", int(Float))))
	shape := Static(s...)
	for i, n := range s {
		if n == -1 {
			shape[i] = Sym("B")
		}
	}

	return o.Set(shape)
}

func (w *writer) placeholder(_ *onnx.GraphProto, op *Op) error {
	return fmt.Errorf("nothing has replaced the placeholder for %T", op.value)
}
