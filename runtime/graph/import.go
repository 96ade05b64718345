package graph

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
)

// File is an ONNX model: its graph, its outputs, and everything else in the file.
type File struct {
	Graph   *Graph
	Outputs []Output
	Proto   *onnx.ModelProto
	nodes   map[string]Node

	expanded int  // operators added for branches and loops
	fixed    bool // it is read for FixSizes
}

// Node returns the value with a name, anywhere in the model.
func (f *File) Node(name string) (Node, bool) {
	n, ok := f.nodes[name]
	return n, ok
}

// Output returns the output with a name.
func (f *File) Output(name string) (Node, bool) {
	for _, o := range f.Outputs {
		if o.Name == name {
			return o.Node, true
		}
	}
	return Node{}, false
}

// Inputs lists the inputs in the model's order, without the constants that older files list among them.
func (f *File) Inputs() []Node {
	var out []Node
	for _, in := range f.Proto.Graph.Input {
		if n := f.nodes[in.Name]; n.Op().IsInput() {
			out = append(out, n)
		}
	}
	return out
}

// ReadFile reads an ONNX model from a file. Weights in other files are not read; the graph refers to them.
func ReadFile(path string) (*File, error) {
	m, err := onnx.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return named(path, m)
}

// OpenFile is ReadFile for the file at location, relative to dir. Its large weights stay in the file (see
// onnx.OpenFile).
func OpenFile(dir, location string) (*File, error) {
	m, err := onnx.OpenFile(dir, location)
	if err != nil {
		return nil, err
	}
	return named(filepath.Join(dir, filepath.FromSlash(location)), m)
}

func named(path string, m *onnx.ModelProto) (*File, error) {
	f, err := ReadModel(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Read decodes an ONNX model.
func Read(b []byte) (*File, error) {
	m, err := onnx.Unmarshal(b)
	if err != nil {
		return nil, err
	}
	return ReadModel(m)
}

// ReadModel builds the graph of a checked model. It changes the model and upgrades it to Opset. Unknown operators stay
// unchanged, with unknown shapes.
func ReadModel(m *onnx.ModelProto) (*File, error) { return readModel(m, false) }

func readModel(model *onnx.ModelProto, fixed bool) (*File, error) {
	if model.Graph == nil || len(model.Graph.Output) == 0 {
		return nil, fmt.Errorf("not an ONNX model: it has no graph with outputs")
	}

	if err := onnx.Upgrade(model); err != nil {
		return nil, err
	}

	file := &File{Graph: New(), Proto: model, nodes: map[string]Node{}, fixed: fixed}
	top := &scope{names: file.nodes}
	for _, t := range model.Graph.Initializer {
		if err := top.declare(t.Name, file.Graph.imported(t, t.Name)); err != nil {
			return nil, fmt.Errorf("initializers: %w", err)
		}
	}

	constants := maps.Clone(file.nodes)
	for _, in := range model.Graph.Input {
		if _, isConst := constants[in.Name]; isConst {
			continue // older files list constants among the inputs
		}
		dtype, shape := typeOf(in)
		if err := top.declare(in.Name, file.Graph.Input(in.Name, dtype, shape)); err != nil {
			return nil, fmt.Errorf("inputs: %w", err)
		}
	}

	known := map[string]*onnx.ValueInfoProto{}
	for _, vi := range append(append([]*onnx.ValueInfoProto{}, model.Graph.ValueInfo...), model.Graph.Output...) {
		known[vi.Name] = vi
	}

	top.known = known
	for _, p := range model.Graph.Node {
		if err := file.node(p, top); err != nil {
			return nil, err
		}
	}

	file.Graph.need(model.OpsetImport)
	if file.Graph.err != nil {
		return nil, file.Graph.err
	}

	for _, out := range model.Graph.Output {
		n, ok := file.nodes[out.Name]
		if !ok {
			return nil, fmt.Errorf("output %q is made by no node", out.Name)
		}
		file.Outputs = append(file.Outputs, Output{out.Name, n})
	}

	return file, nil
}

func (f *File) node(node *onnx.NodeProto, scope *scope) error {
	name := node.Name
	if name != "" {
		name = scope.label + name
	}

	if err := f.place(node, scope, name); err != nil {
		if inner := (&onnx.NodeError{}); errors.As(err, &inner) {
			return err // of a node in a subgraph
		}
		return &onnx.NodeError{Label: onnx.Label(node.OpType, name), Err: err}
	}

	return nil
}

func (f *File) place(node *onnx.NodeProto, scope *scope, name string) error {
	if err := f.Graph.room(len(node.Output)); err != nil {
		return err
	}

	domain := node.Domain
	if onnx.Standard(domain) {
		domain = Standard
	}

	var in []Node
	for _, input := range node.Input {
		n, ok := scope.get(input)
		if input != "" && !ok {
			return fmt.Errorf("input %q is made by no earlier node", input)
		}
		in = append(in, n)
	}

	if len(node.Output) == 0 {
		return errors.New("it has no output")
	}

	if t, err := onnx.ConstantOf(node); err != nil {
		return err
	} else if t != nil && domain == Standard {
		return scope.declare(node.Output[0], f.Graph.imported(t, node.Output[0]))
	}

	if domain == Standard {
		if done, err := f.branch(node, in, scope); done || err != nil {
			return err
		}
		if done, err := f.loop(node, in, scope); done || err != nil {
			return err
		}
	}

	return f.operator(node, in, scope, name, domain)
}

// operator adds a node without rewriting it.
func (f *File) operator(node *onnx.NodeProto, in []Node, scope *scope, name, domain string) error {
	uses, err := scope.captures(node)
	if err != nil {
		return err
	}

	op := f.Graph.add(lookup(domain, node.OpType), domain, node.OpType, readAttrs(node.Attribute), len(node.Output), in)
	op.Name, op.Uses, op.proto = name, uses, node
	if err := infer(op); err != nil {
		return fmt.Errorf("inputs of shapes %s: %w", describe(in), err)
	}

	for i, name := range node.Output {
		if name == "" {
			continue
		}
		if err := scope.declare(name, op.Out[i]); err != nil {
			return err
		}
		v := op.Out[i].value
		v.name = name
		if vi := scope.known[name]; vi != nil {
			adopt(v, vi)
		}
	}

	return nil
}

// adopt sets type and shape of a value from the file where inference did not find them.
func adopt(value *value, vi *onnx.ValueInfoProto) {
	dtype, shape := typeOf(vi)
	if dtype != 0 && (value.dtype == 0 || value.op.def == nil) {
		value.dtype = dtype
	}

	if value.shape == nil && len(shape) <= MaxRank {
		value.shape = shape
		return
	}

	if len(shape) == len(value.shape) {
		value.shape = slices.Clone(value.shape) // an input may share it
		for i := range shape {
			if !value.shape[i].Static() && shape[i].Static() {
				value.shape[i] = shape[i]
			}
		}
	}
}

func typeOf(vi *onnx.ValueInfoProto) (DType, Shape) {
	tensor := vi.GetType().GetTensorType()
	if tensor == nil {
		return 0, nil
	}

	if tensor.Shape == nil {
		return DType(tensor.ElemType), nil
	}

	shape := Shape{}
	for i, d := range tensor.Shape.Dim {
		switch v := d.Value.(type) {
		case *onnx.TensorShapeProto_Dimension_DimValue:
			if v.DimValue < 0 {
				shape = append(shape, symbol("", vi.Name, i))
				break
			}
			shape = append(shape, StaticDim(int(v.DimValue)))
		case *onnx.TensorShapeProto_Dimension_DimParam:
			shape = append(shape, symbol(v.DimParam, vi.Name, i))
		default:
			shape = append(shape, symbol("", vi.Name, i))
		}
	}

	return DType(tensor.ElemType), shape
}

func symbol(param, value string, axis int) Dim {
	if param == "" {
		return opaque("%s.%d", value, axis)
	}

	for i, r := range param {
		if !(r == '_' || i > 0 && r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return opaque("%s", param)
		}
	}

	return Sym(param)
}

// Model returns outputs of an imported graph as a model, with everything else in the file: metadata, operator set
// versions and unknown fields. Inputs of the file stay inputs, used or not.
func (f *File) Model(outputs ...Output) (*onnx.ModelProto, error) {
	old := f.Proto.Graph
	model, graphProto := onnx.ShallowCopy(f.Proto), onnx.ShallowCopy(old)
	model.Graph, model.OpsetImport = graphProto, slices.Clone(model.OpsetImport)
	graphProto.Node, graphProto.Initializer, graphProto.Input, graphProto.Output, graphProto.ValueInfo = nil, nil, nil,
		nil, nil
	if err := (&writer{}).graph(model, outputs); err != nil {
		return nil, err
	}

	for _, in := range old.Input {
		n, ok := f.nodes[in.Name]
		if ok && n.Op().IsInput() && !slices.ContainsFunc(graphProto.Input,
			func(v *onnx.ValueInfoProto) bool { return v.Name == in.Name }) {
			graphProto.Input = append(graphProto.Input, in)
		}
	}

	return model, nil
}

func toInts(v []int64) []int {
	return convert.Slice(v, func(x int64) int { return int(x) })
}

// captures lists the outer values that the subgraphs of a node read. A value with another name than they read gets an
// Identity with that name.
func (s *scope) captures(p *onnx.NodeProto) ([]Node, error) {
	var out []Node
	for _, name := range onnx.OuterNames(p) {
		node, ok := s.get(name)
		if !ok || !node.OK() {
			return nil, fmt.Errorf("its inner graph reads %q, which is made by no earlier node", name)
		}
		if node.value.name != name {
			op := node.Graph().add(lookup(Standard, "Identity"), Standard, "Identity", nil, 1, []Node{node})
			if err := infer(op); err != nil {
				return nil, err
			}
			node = op.Out[0]
			node.value.name, s.names[name] = name, node
		}
		out = append(out, node)
	}

	return out, nil
}
