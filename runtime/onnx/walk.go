package onnx

import (
	"cmp"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Messages iterates over everything in a model, each message before its contents: graphs with values, initializers
// (also sparse ones) and nodes, attributes with tensors and graphs, functions with bodies and default attributes, and
// training graphs.
func Messages(model *ModelProto) iter.Seq[proto.Message] {
	return func(yield func(proto.Message) bool) {
		w := walk{yield}
		if !w.graph(model.GetGraph()) {
			return
		}
		for _, f := range model.GetFunctions() {
			if !yield(f) || !each(f.AttributeProto, w.attribute) || !each(f.Node, w.node) {
				return
			}
		}
		for _, t := range model.GetTrainingInfo() {
			if !w.graph(t.Initialization) || !w.graph(t.Algorithm) {
				return
			}
		}
	}
}

// Tensors iterates over all tensors of a model.
func Tensors(m *ModelProto) iter.Seq[*TensorProto] {
	return func(yield func(*TensorProto) bool) {
		for x := range Messages(m) {
			if t, ok := x.(*TensorProto); ok && !yield(t) {
				return
			}
		}
	}
}

type walk struct{ yield func(proto.Message) bool }

func each[T any](list []T, visit func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !visit(x) })
}

func (w walk) graph(g *GraphProto) bool {
	if g == nil {
		return true
	}
	value := func(v *ValueInfoProto) bool { return w.yield(v) }
	return w.yield(g) && each(g.Input, value) && each(g.Output, value) && each(g.ValueInfo, value) &&
		each(g.Initializer, w.tensor) && each(g.SparseInitializer, w.sparse) && each(g.Node, w.node)
}

func (w walk) node(n *NodeProto) bool { return w.yield(n) && each(n.Attribute, w.attribute) }

func (w walk) attribute(a *AttributeProto) bool {
	return w.yield(a) && w.tensor(a.T) && each(a.Tensors, w.tensor) && w.sparse(a.SparseTensor) &&
		each(a.SparseTensors, w.sparse) && w.graph(a.G) && each(a.Graphs, w.graph)
}

func (w walk) tensor(t *TensorProto) bool { return t == nil || w.yield(t) }

func (w walk) sparse(t *SparseTensorProto) bool {
	return t == nil || w.yield(t) && w.tensor(t.Values) && w.tensor(t.Indices)
}

// Subgraphs returns the graphs among a node's attributes, such as the branches of If.
func Subgraphs(n *NodeProto) []*GraphProto {
	var out []*GraphProto
	for _, a := range n.GetAttribute() {
		if a.G != nil {
			out = append(out, a.G)
		}
		out = append(out, a.Graphs...)
	}

	return out
}

// OuterNames lists, without repetition, the names that the subgraphs of n read from outside.
func OuterNames(n *NodeProto) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, graph := range Subgraphs(n) {
		made := map[string]bool{}
		read := func(name string) {
			if !made[name] && !seen[name] {
				seen[name], out = true, append(out, name)
			}
		}

		for _, v := range graph.Input {
			made[v.Name] = true
		}

		for _, t := range graph.Initializer {
			made[t.Name] = true
		}

		for _, q := range graph.Node {
			for _, name := range append(OuterNames(q), q.Input...) {
				read(name)
			}
			for _, name := range q.Output {
				made[name] = true
			}
		}

		for _, v := range graph.Output {
			read(v.Name)
		}
	}

	return out
}

// RenameOuter returns a copy of n whose subgraphs read other names from outside: for a key of names, its value.
func RenameOuter(n *NodeProto, names map[string]string) *NodeProto {
	n = proto.Clone(n).(*NodeProto)
	for _, g := range Subgraphs(n) {
		rename(g, func(name string) string { return cmp.Or(names[name], name) })
	}
	return n
}

// ShallowCopy returns a copy of a message. It shares lists, messages and bytes with m, and keeps unknown fields.
func ShallowCopy[M proto.Message](m M) M {
	from := m.ProtoReflect()
	to := from.New()
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		to.Set(f, v)
		return true
	})

	to.SetUnknown(from.GetUnknown())
	return to.Interface().(M)
}
