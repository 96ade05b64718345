package graph

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
)

// Opset is the version of the standard operator set of new graphs.
const Opset = onnx.Opset

// Output is a node with its name outside of the graph.
type Output struct {
	Name string
	Node Node
}

// Model returns the part of the graph that the outputs depend on as an ONNX model. Inputs keep their names, constants
// become initializers, and Detach disappears.
func Model(outputs ...Output) (*onnx.ModelProto, error) { return model(&writer{}, outputs) }

func model(writer *writer, outputs []Output) (*onnx.ModelProto, error) {
	if len(outputs) == 0 {
		return nil, fmt.Errorf("a graph needs at least one output")
	}

	m := &onnx.ModelProto{
		IrVersion: 8, ProducerName: "promptfed", Graph: &onnx.GraphProto{Name: "main"},
		OpsetImport: []*onnx.OperatorSetIdProto{{Version: Opset}},
	}

	if n := outputs[0].Node; n.OK() && n.Graph().opset > Opset { // operators of a file with a later set
		m.OpsetImport[0].Version = n.Graph().opset
		m.IrVersion = irVersion(n.Graph().opset)
	}

	return m, writer.graph(m, outputs)
}

// irVersion returns the IR version of an operator set above 18, from ONNX's table of releases.
func irVersion(opset int64) int64 {
	switch {
	case opset <= 20:
		return 9
	case opset <= 22:
		return 10
	case opset <= 24:
		return 11
	}

	return 12
}

// Marshal returns the encoded Model. The same graph has the same bytes.
func Marshal(outputs ...Output) ([]byte, error) {
	m, err := Model(outputs...)
	if err != nil {
		return nil, err
	}
	return onnx.Marshal(m)
}

type writer struct {
	// For a signature, all reachable operators with their order: names depend on no others, and gradient stops, own
	// gradients and placeholders become nodes. Otherwise nil.
	order map[*Op]int
	names map[*value]string
	taken map[string]bool
	used  map[*value]bool // values that an operator or an output uses
	nodes map[string]int  // operators so far, by name
}

func checkOutputs(outputs []Output) ([]Node, error) {
	roots := make([]Node, len(outputs))
	seen := map[string]bool{"": true}
	for i, o := range outputs {
		switch {
		case !o.Node.OK():
			return nil, fmt.Errorf("output %q has no node", o.Name)
		case o.Node.Graph() != outputs[0].Node.Graph():
			return nil, fmt.Errorf("outputs %q and %q are of different graphs", outputs[0].Name, o.Name)
		case seen[o.Name]:
			return nil, fmt.Errorf("output name %q is empty or used twice", o.Name)
		}
		seen[o.Name], roots[i] = true, o.Node
	}

	return roots, outputs[0].Node.Graph().err
}

// keepNames assigns the given names of values, and returns the values that must keep theirs: inputs, and values that
// subgraphs read.
func (w *writer) keepNames(ops []*Op) (fixed map[*value]bool) {
	fixed = map[*value]bool{}
	keep := func(v *value) {
		if v.name != "" && !w.taken[v.name] {
			w.taken[v.name], w.names[v] = true, v.name
		}
	}

	for _, op := range ops {
		if op.IsInput() {
			fixed[op.Out[0].value] = true
			keep(op.Out[0].value)
		}
		for _, n := range op.Uses {
			fixed[n.value] = true
			keep(n.value)
		}
		for _, n := range op.In {
			if n.OK() {
				w.used[w.source(n).value] = true
			}
		}
	}

	for _, op := range ops {
		for _, o := range op.Out {
			keep(o.value)
		}
	}

	return fixed
}

func (w *writer) graph(model *onnx.ModelProto, outputs []Output) error {
	w.names, w.taken = map[*value]string{}, map[string]bool{"": true}
	w.used, w.nodes = map[*value]bool{}, map[string]int{}
	roots, err := checkOutputs(outputs)
	if err != nil {
		return err
	}

	ops := Reachable(roots...)
	if w.order != nil {
		for i, op := range ops {
			w.order[op] = i
		}
	}

	fixed := w.keepNames(ops)
	var renames []Output
	for _, op := range ops {
		for _, n := range op.Uses {
			if w.names[n.value] != n.value.name {
				return fmt.Errorf("%s: its inner graph reads %q, a name that two values have", op.Label(), n.value.name)
			}
		}
	}

	for _, output := range outputs {
		v := w.source(output.Node).value
		w.used[v] = true
		switch old, has := w.names[v]; {
		case has && old == output.Name && !v.op.IsInput() && v.op.data == nil:
		case !has && !w.taken[output.Name] && v.op.data == nil:
			w.taken[output.Name], w.names[v] = true, output.Name
		default:
			renames = append(renames, output)
			if w.taken[output.Name] {
				for x, n := range w.names { // an inner value happens to have this name
					if n == output.Name && !fixed[x] {
						delete(w.names, x)
						w.taken[output.Name] = false
					}
				}
			}
			if w.taken[output.Name] {
				return fmt.Errorf("output %q has the name of an input, or of a value that an inner graph reads",
					output.Name)
			}
			w.taken[output.Name] = true
		}
	}

	domains := map[string]bool{}
	for _, op := range ops {
		if err := w.op(model.Graph, op, domains); err != nil {
			return err
		}
	}

	for _, o := range renames {
		model.Graph.Node = append(model.Graph.Node, &onnx.NodeProto{OpType: "Identity",
			Input: []string{w.name(o.Node)}, Output: []string{o.Name}})
	}

	for _, o := range outputs {
		model.Graph.Output = append(model.Graph.Output, valueInfo(o.Name, o.Node))
	}

	for _, d := range slices.Sorted(maps.Keys(domains)) {
		if !slices.ContainsFunc(model.OpsetImport, func(o *onnx.OperatorSetIdProto) bool { return o.Domain == d }) {
			model.OpsetImport = append(model.OpsetImport, &onnx.OperatorSetIdProto{Domain: d, Version: 1})
		}
	}

	return nil
}

func (w *writer) op(graphProto *onnx.GraphProto, op *Op, domains map[string]bool) error {
	if op.def != nil && op.def.write != nil && (w.order == nil || op.def == inputDef || op.def == constantDef ||
		op.def == whileDef) {
		return op.def.write(w, graphProto, op)
	}

	node := &onnx.NodeProto{OpType: op.Kind, Domain: op.Domain, Name: op.Name}
	if op.proto != nil {
		node = onnx.ShallowCopy(op.proto)
		node.Input, node.Output = nil, nil
	} else {
		for _, k := range slices.Sorted(maps.Keys(op.Attrs)) {
			node.Attribute = append(node.Attribute, op.Attrs[k].proto(k))
		}
	}

	if w.nodes[op.Name]++; op.Name != "" && w.nodes[op.Name] > 1 { // a tower is in the graph twice
		node.Name = ""
	}

	for _, x := range op.In {
		node.Input = append(node.Input, w.name(x))
	}

	for _, x := range op.Out {
		if op.proto != nil && x.value.name == "" && !w.used[x.value] { // the file omits it
			node.Output = append(node.Output, "")
			continue
		}
		node.Output = append(node.Output, w.name(x))
		if len(onnx.Subgraphs(op.proto)) > 0 && x.value.dtype != 0 { // no rule infers its type
			graphProto.ValueInfo = append(graphProto.ValueInfo, valueInfo(w.name(x), x))
		}
	}

	domains[op.Domain] = true
	graphProto.Node = append(graphProto.Node, node)
	return nil
}

func (w *writer) input(g *onnx.GraphProto, op *Op) error {
	g.Input = append(g.Input, valueInfo(w.name(op.Out[0]), op.Out[0]))
	return nil
}

func (w *writer) constant(g *onnx.GraphProto, op *Op) error {
	g.Initializer = append(g.Initializer, w.initializer(op))
	return nil
}

// nothing writes an operator that a model does not have: its output is its first input.
func (w *writer) nothing(*onnx.GraphProto, *Op) error { return nil }

// source returns the value behind gradient stops and own gradients, which a model does not have.
func (w *writer) source(n Node) Node {
	for n.OK() && (n.value.op.def == stopDef || n.value.op.def == ownDef) && w.order == nil {
		n = n.value.op.In[0]
	}
	return n
}

func (w *writer) name(n Node) string {
	if !n.OK() {
		return ""
	}

	value := w.source(n).value
	if s, ok := w.names[value]; ok {
		return s
	}

	id := value.op.ID
	if w.order != nil {
		id = w.order[value.op]
	}

	s := "v" + strconv.Itoa(id)
	if value.index > 0 {
		s += "." + strconv.Itoa(value.index)
	}

	for w.taken[s] {
		s += "_"
	}

	w.names[value], w.taken[s] = s, true
	return s
}

func (w *writer) initializer(op *Op) *onnx.TensorProto {
	name := w.name(op.Out[0])
	literal := op.data
	if literal.Proto != nil {
		p := onnx.ShallowCopy(literal.Proto)
		p.Name = name
		return p
	}

	return &onnx.TensorProto{Name: name, DataType: int32(op.Out[0].value.dtype), RawData: rawBytes(literal.Tensor),
		Dims: convert.Slice(op.Out[0].value.shape, func(d Dim) int64 { return int64(d.N) })}
}

func valueInfo(name string, n Node) *onnx.ValueInfoProto {
	if n.value.dtype == 0 {
		return &onnx.ValueInfoProto{Name: name} // ONNX Runtime infers it
	}

	tensor := &onnx.TypeProto_Tensor{ElemType: int32(n.value.dtype)}
	if n.value.shape != nil {
		tensor.Shape = &onnx.TensorShapeProto{}
		for _, d := range n.value.shape {
			dim := &onnx.TensorShapeProto_Dimension{}
			if d.Static() {
				dim.Value = &onnx.TensorShapeProto_Dimension_DimValue{DimValue: int64(d.N)}
			} else {
				dim.Value = &onnx.TensorShapeProto_Dimension_DimParam{DimParam: d.String()}
			}
			tensor.Shape.Dim = append(tensor.Shape.Dim, dim)
		}
	}

	return &onnx.ValueInfoProto{Name: name,
		Type: &onnx.TypeProto{Value: &onnx.TypeProto_TensorType{TensorType: tensor}}}
}
