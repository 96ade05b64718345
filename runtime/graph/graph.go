// Package graph builds computations out of ONNX operators: typed nodes, interned so that the same expression
// asked for twice is one node, with static and symbolic dimensions checked as the graph grows.
//
// A node method that cannot be applied (shapes that do not fit, say) does not panic: it records the first error in
// its Graph, naming the operator and the shapes, and returns a node that swallows whatever is done with it.
// Err reports that error; writing the graph out reports it too. So losses read like formulas.
//
// A Graph is built by one goroutine at a time.
package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/runtime/onnx"
)

// DType is the element type of a node, numbered as in ONNX.
type DType = onnx.TensorProto_DataType

// Element types that graphs are built of.
const (
	Float  = onnx.TensorProto_FLOAT
	Double = onnx.TensorProto_DOUBLE
	Int64  = onnx.TensorProto_INT64
	Int32  = onnx.TensorProto_INT32
	Bool   = onnx.TensorProto_BOOL
	Half   = onnx.TensorProto_FLOAT16
	Uint8  = onnx.TensorProto_UINT8
)

// Domains of operators.
const (
	Standard  = ""              // ONNX itself
	Microsoft = "com.microsoft" // ONNX Runtime's fused operators
	Own       = "ai.promptfed"  // operators that must be lowered or dropped before a graph is written
)

// Attrs are the attributes of an operator: int, float32, string, []int, []float32, or *onnx.AttributeProto for
// anything else. An attribute that is stored with another type than an accessor reads counts as missing.
type Attrs map[string]any

// Graph is a growing set of interned operators.
type Graph struct {
	ops    []*Op
	intern map[string]*Op
	inputs map[string]Node
	opset  int64 // the standard operator set that its operators need, at least Opset
	err    error
}

// New returns an empty graph.
func New() *Graph { return &Graph{intern: map[string]*Op{}, inputs: map[string]Node{}, opset: Opset} }

// Err is the first error met while building, or nil.
func (g *Graph) Err() error { return g.err }

// need says that g holds operators of the operator sets of a file.
func (g *Graph) need(list []*onnx.OperatorSetIdProto) { g.opset = max(g.opset, onnx.Version(list)) }

// Fail records an error unless there is one already, and returns the node that swallows everything.
func (g *Graph) Fail(format string, a ...any) Node {
	if g.err == nil {
		g.err = fmt.Errorf(format, a...)
	}
	return Node{&value{op: &Op{g: g, Kind: "Error"}}}
}

// Op is one operator: a function of nodes with attributes.
type Op struct {
	g      *Graph
	ID     int // operators are numbered as they are made, so inputs have smaller numbers
	Domain string
	Kind   string
	Attrs  Attrs
	In     []Node // a zero Node is an optional input left out
	Uses   []Node // what graphs among its attributes read by name, as the branches of If do
	Out    []Node
	Name   string          // from an imported file; may be empty
	proto  *onnx.NodeProto // as imported, nil otherwise
	data   *Literal        // of a constant
}

// Graph is the graph that o belongs to.
func (o *Op) Graph() *Graph { return o.g }

// Literal is the constant's content, nil for other operators.
func (o *Op) Literal() *Literal { return o.data }

// Label names the operator for messages: its kind, and its name where it came from a file.
func (o *Op) Label() string {
	if o.Name != "" {
		return o.Kind + " (node " + o.Name + ")"
	}
	return o.Kind
}

type value struct {
	op    *Op
	index int
	name  string
	dtype DType
	shape Shape
	ints  []Dim // content, where an integer vector or scalar is known while building
	table []Dim // the same of an integer tensor of higher rank, row by row
}

// Node is one output of an operator. The zero Node is "absent".
type Node struct{ v *value }

// OK tells whether n is a node at all.
func (n Node) OK() bool { return n.v != nil }

// Op is the operator that makes n.
func (n Node) Op() *Op { return n.v.op }

// Index is which of its operator's outputs n is.
func (n Node) Index() int { return n.v.index }

// Graph is the graph that n belongs to.
func (n Node) Graph() *Graph { return n.v.op.g }

// Shape is the shape of n; nil where even the rank is unknown.
func (n Node) Shape() Shape { return n.v.shape }

// Rank is the number of axes, or -1 where it is unknown.
func (n Node) Rank() int {
	if n.v.shape == nil {
		return -1
	}
	return len(n.v.shape)
}

// Dim is the static size of axis i (negative counts from the end); an unknown one is an error and gives 1.
func (n Node) Dim(i int) int {
	if i < 0 {
		i += len(n.v.shape)
	}
	if i < 0 || i >= len(n.v.shape) || !n.v.shape[i].Static() {
		n.Graph().Fail("%s: axis %d of shape %v is not a known size", n.Op().Label(), i, n.v.shape)
		return 1
	}
	return n.v.shape[i].N
}

// DType is the element type.
func (n Node) DType() DType { return n.v.dtype }

// Ints is the content of an integer scalar or vector where it is known while building, else nil.
func (n Node) Ints() []Dim { return n.v.ints }

// Name is the name given to an input or read from a file; may be empty.
func (n Node) Name() string { return n.v.name }

func (n Node) String() string { return fmt.Sprintf("%s%v", n.Op().Label(), n.v.shape) }

func (n Node) poisoned() bool { return n.v != nil && n.v.op.Kind == "Error" }

// Input declares a value that is fed when the graph runs. Asking again for the same name gives the same node; another
// type or shape under that name is an error.
func (g *Graph) Input(name string, dtype DType, shape Shape) Node {
	if n, ok := g.inputs[name]; ok {
		if n.v.dtype != dtype || fmt.Sprint(n.v.shape) != fmt.Sprint(shape) {
			return g.Fail("input %s is both %v%v and %v%v", name, n.v.dtype, n.v.shape, dtype, shape)
		}
		return n
	}
	op := &Op{g: g, Domain: Own, Kind: "Input", ID: len(g.ops)}
	g.ops = append(g.ops, op)
	op.Out = []Node{{&value{op: op, name: name, dtype: dtype, shape: shape}}}
	g.inputs[name] = op.Out[0]
	return op.Out[0]
}

// InputNamed returns the input called name, if there is one.
func (g *Graph) InputNamed(name string) (Node, bool) {
	n, ok := g.inputs[name]
	return n, ok
}

// Apply adds one operator with a single output.
func (g *Graph) Apply(domain, kind string, attrs Attrs, in ...Node) Node {
	return g.apply(domain, kind, attrs, 1, in)[0]
}

// ApplyN adds an operator with n outputs, or returns the one that is there already. Trailing absent inputs are dropped.
func (g *Graph) ApplyN(domain, kind string, attrs Attrs, n int, in ...Node) []Node {
	return slices.Clone(g.apply(domain, kind, attrs, n, in))
}

// apply is ApplyN, but may give the operator's own list of outputs.
func (g *Graph) apply(domain, kind string, attrs Attrs, n int, in []Node) []Node {
	for len(in) > 0 && !in[len(in)-1].OK() {
		in = in[:len(in)-1]
	}
	for _, x := range in {
		if x.poisoned() {
			return slices.Repeat([]Node{x}, n)
		}
		if x.OK() && x.Graph() != g {
			return slices.Repeat([]Node{g.Fail("%s: input %v belongs to another graph", kind, x)}, n)
		}
	}
	key := internKey(domain, kind, attrs, n, in)
	if op, ok := g.intern[key]; ok {
		return op.Out
	}
	op := g.add(domain, kind, attrs, n, in)
	if err := infer(op); err != nil {
		return slices.Repeat([]Node{g.Fail("%s(%s): %w", op.Label(), describe(in), err)}, n)
	}
	g.intern[key] = op
	return op.Out
}

func (g *Graph) add(domain, kind string, attrs Attrs, n int, in []Node) *Op {
	op := &Op{g: g, ID: len(g.ops), Domain: domain, Kind: kind, Attrs: attrs, In: slices.Clone(in)}
	for i := range n {
		op.Out = append(op.Out, Node{&value{op: op, index: i}})
	}
	g.ops = append(g.ops, op)
	return op
}

func describe(in []Node) string {
	parts := make([]string, len(in))
	for i, n := range in {
		if n.OK() {
			parts[i] = n.v.shape.String()
		}
	}
	return strings.Join(parts, ", ")
}

func internKey(domain, kind string, attrs Attrs, n int, in []Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%s/%d", domain, kind, n)
	for _, x := range in {
		if x.OK() {
			fmt.Fprintf(&b, " %d.%d", x.v.op.ID, x.v.index)
		} else {
			b.WriteString(" -")
		}
	}
	for _, k := range slices.Sorted(maps.Keys(attrs)) {
		if s, ok := attrs[k].(string); ok {
			fmt.Fprintf(&b, " %s=%q", k, s)
			continue
		}
		fmt.Fprintf(&b, " %s=%T:%v", k, attrs[k], attrs[k])
	}
	return b.String()
}

// Int reads an integer attribute.
func (a Attrs) Int(name string, missing int) int {
	if v, ok := a[name].(int); ok {
		return v
	}
	return missing
}

// Ints reads an integer list attribute.
func (a Attrs) Ints(name string) ([]int, bool) {
	v, ok := a[name].([]int)
	return v, ok
}

// Float reads a float attribute.
func (a Attrs) Float(name string, missing float32) float32 {
	if v, ok := a[name].(float32); ok {
		return v
	}
	return missing
}

// Str reads a string attribute.
func (a Attrs) Str(name, missing string) string {
	if v, ok := a[name].(string); ok {
		return v
	}
	return missing
}
