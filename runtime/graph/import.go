package graph

import (
	"fmt"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"

	"promptfed/runtime/onnx"
)

// File is an ONNX model that was read: its graph, its outputs, and everything else it held.
type File struct {
	Graph   *Graph
	Outputs []Output
	Proto   *onnx.ModelProto
	nodes   map[string]Node
}

// Node returns the value of that name anywhere in the model.
func (f *File) Node(name string) (Node, bool) {
	n, ok := f.nodes[name]
	return n, ok
}

// Output returns the output of that name.
func (f *File) Output(name string) (Node, bool) {
	for _, o := range f.Outputs {
		if o.Name == name {
			return o.Node, true
		}
	}
	return Node{}, false
}

// ReadFile reads an ONNX model from a file of at most 2 GiB. Weights in files beside it are not read, only pointed at.
func ReadFile(path string) (*File, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := Read(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Read decodes an ONNX model. Operators it does not know stay as they are, with unknown shapes.
func Read(b []byte) (*File, error) {
	m := &onnx.ModelProto{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("not an ONNX model: %w", err)
	}
	if m.Graph == nil || len(m.Graph.Output) == 0 {
		return nil, fmt.Errorf("not an ONNX model: it has no graph with outputs")
	}
	f := &File{Graph: New(), Proto: m, nodes: map[string]Node{}}
	version := int64(0)
	for _, o := range m.OpsetImport {
		if o.Domain == "" || o.Domain == "ai.onnx" {
			version = o.Version
		}
	}
	if version < 7 {
		return nil, fmt.Errorf("operator set %d is too old; export the model with operator set 13 or newer", version)
	}
	for _, t := range m.Graph.Initializer {
		if err := checkTensor(t); err != nil {
			return nil, err
		}
		n := f.Graph.constantProto(t)
		if n.v.name == "" {
			n.v.name = t.Name
		}
		f.nodes[t.Name] = n
	}
	for _, in := range m.Graph.Input {
		if _, isConst := f.nodes[in.Name]; !isConst {
			dtype, shape := typeOf(in)
			f.nodes[in.Name] = f.Graph.Input(in.Name, dtype, shape)
		}
	}
	known := map[string]*onnx.ValueInfoProto{}
	for _, vi := range append(append([]*onnx.ValueInfoProto{}, m.Graph.ValueInfo...), m.Graph.Output...) {
		known[vi.Name] = vi
	}
	for _, p := range m.Graph.Node {
		if err := f.node(p, known, version); err != nil {
			return nil, err
		}
	}
	for _, o := range m.OpsetImport {
		if o.Domain == "" || o.Domain == "ai.onnx" {
			o.Version = max(o.Version, Opset)
		}
	}
	m.IrVersion = max(m.IrVersion, 8)
	if f.Graph.err != nil {
		return nil, f.Graph.err
	}
	for _, out := range m.Graph.Output {
		n, ok := f.nodes[out.Name]
		if !ok {
			return nil, fmt.Errorf("output %q is made by no node", out.Name)
		}
		f.Outputs = append(f.Outputs, Output{out.Name, n})
	}
	return f, nil
}

func (f *File) node(p *onnx.NodeProto, known map[string]*onnx.ValueInfoProto, version int64) error {
	label := p.OpType
	if p.Name != "" {
		label += " (node " + p.Name + ")"
	}
	if p.Domain == Own {
		return fmt.Errorf("%s: domain %s is for use inside promptfed only", label, Own)
	}
	domain := p.Domain
	if domain == "ai.onnx" {
		domain = Standard
	}
	var in []Node
	for _, name := range p.Input {
		n, ok := f.nodes[name]
		if name != "" && !ok {
			return fmt.Errorf("%s: input %q is made by no earlier node", label, name)
		}
		in = append(in, n)
	}
	g := f.Graph
	if p.OpType == "Constant" && domain == Standard {
		if len(p.Attribute) == 1 && p.Attribute[0].T != nil {
			if err := checkTensor(p.Attribute[0].T); err != nil {
				return fmt.Errorf("%s: %w", label, err)
			}
			f.nodes[p.Output[0]] = g.constantProto(p.Attribute[0].T)
			return nil
		}
		if len(p.Attribute) == 1 && p.Attribute[0].Name == "value_ints" {
			f.nodes[p.Output[0]] = g.Ints(toInts(p.Attribute[0].Ints)...)
			return nil
		}
	}
	in, err := f.upgrade(p, in, version)
	if err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	op := g.add(domain, p.OpType, readAttrs(p.Attribute), len(p.Output), in)
	op.Name, op.proto = p.Name, p
	if len(p.Output) == 0 {
		return fmt.Errorf("%s: it has no output", label)
	}
	if err := infer(op); err != nil {
		return fmt.Errorf("%s(%s): %w", label, describe(in), err)
	}
	for i, name := range p.Output {
		if name == "" {
			continue
		}
		if _, twice := f.nodes[name]; twice {
			return fmt.Errorf("%s: value %q is made twice", label, name)
		}
		v := op.Out[i].v
		v.name = name
		f.nodes[name] = op.Out[i]
		if vi := known[name]; vi != nil {
			adopt(v, vi)
		}
	}
	return nil
}

// adopt takes over from the file what inference could not find out.
func adopt(v *value, vi *onnx.ValueInfoProto) {
	dtype, shape := typeOf(vi)
	if v.dtype == 0 || !inferred(v.op) {
		v.dtype = dtype
	}
	if v.shape == nil {
		v.shape = shape
		return
	}
	if len(shape) == len(v.shape) {
		for i := range shape {
			if !v.shape[i].Static() && shape[i].Static() {
				v.shape[i] = shape[i]
			}
		}
	}
}

func inferred(op *Op) bool { _, ok := inferTable[op.Domain+":"+op.Kind]; return ok }

func typeOf(vi *onnx.ValueInfoProto) (DType, Shape) {
	t := vi.GetType().GetTensorType()
	if t == nil {
		return 0, nil
	}
	if t.Shape == nil {
		return DType(t.ElemType), nil
	}
	shape := Shape{}
	for i, d := range t.Shape.Dim {
		switch v := d.Value.(type) {
		case *onnx.TensorShapeProto_Dimension_DimValue:
			shape = append(shape, D(int(v.DimValue)))
		case *onnx.TensorShapeProto_Dimension_DimParam:
			shape = append(shape, symbol(v.DimParam, vi.Name, i))
		default:
			shape = append(shape, symbol("", vi.Name, i))
		}
	}
	return DType(t.ElemType), shape
}

func symbol(param, value string, axis int) Dim {
	if param == "" {
		return opaque("%s.%d", value, axis)
	}
	for _, r := range param {
		if !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return opaque("%s", param)
		}
	}
	return Sym(param)
}

func readAttrs(list []*onnx.AttributeProto) Attrs {
	a := Attrs{}
	for _, p := range list {
		switch p.Type {
		case onnx.AttributeProto_INT:
			a[p.Name] = int(p.I)
		case onnx.AttributeProto_FLOAT:
			a[p.Name] = p.F
		case onnx.AttributeProto_STRING:
			a[p.Name] = string(p.S)
		case onnx.AttributeProto_INTS:
			a[p.Name] = toInts(p.Ints)
		case onnx.AttributeProto_FLOATS:
			a[p.Name] = p.Floats
		default:
			a[p.Name] = p
		}
	}
	return a
}

func toInts(v []int64) []int {
	out := make([]int, len(v))
	for i, x := range v {
		out[i] = int(x)
	}
	return out
}

// checkTensor refuses a tensor whose inline data does not match its dimensions.
func checkTensor(t *onnx.TensorProto) error {
	n := int64(1)
	for _, d := range t.Dims {
		if d < 0 || d > 0 && n > (1<<40)/d {
			return fmt.Errorf("tensor %q: dimensions %v are out of range", t.Name, t.Dims)
		}
		n *= d
	}
	width := map[DType]int64{Float: 4, Double: 8, Int64: 8, Int32: 4, Bool: 1, Half: 2, Uint8: 1,
		onnx.TensorProto_INT8: 1, onnx.TensorProto_UINT16: 2, onnx.TensorProto_INT16: 2, onnx.TensorProto_BFLOAT16: 2,
		onnx.TensorProto_UINT32: 4, onnx.TensorProto_UINT64: 8}[DType(t.DataType)]
	if t.DataLocation == onnx.TensorProto_EXTERNAL || width == 0 || len(t.RawData) == 0 {
		return nil
	}
	if int64(len(t.RawData)) != n*width {
		return fmt.Errorf("tensor %q: %d bytes for dimensions %v", t.Name, len(t.RawData), t.Dims)
	}
	return nil
}

// WriteModel encodes outputs of an imported graph together with everything else the file held: metadata, functions,
// operator set versions and fields this program does not know. Inputs of the file stay inputs, used or not.
func (f *File) WriteModel(outputs ...Output) ([]byte, error) {
	m := proto.Clone(f.Proto).(*onnx.ModelProto)
	old := m.Graph
	m.Graph = proto.Clone(old).(*onnx.GraphProto)
	m.Graph.Node, m.Graph.Initializer, m.Graph.Input, m.Graph.Output, m.Graph.ValueInfo = nil, nil, nil, nil, nil
	if err := writeGraph(m, outputs); err != nil {
		return nil, err
	}
	for _, in := range old.Input {
		n, ok := f.nodes[in.Name]
		if ok && n.Op().Kind == "Input" && !slices.ContainsFunc(m.Graph.Input, func(v *onnx.ValueInfoProto) bool { return v.Name == in.Name }) {
			m.Graph.Input = append(m.Graph.Input, in)
		}
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}
