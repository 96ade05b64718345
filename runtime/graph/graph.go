package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"promptfed/runtime/onnx"
)

// DType is the element type of a node, with ONNX's numbers.
type DType = onnx.TensorProto_DataType

// Element types of nodes.
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
	Standard  = ""             // ONNX itself
	Microsoft = onnx.Microsoft // ONNX Runtime's fused operators
	Kernels   = onnx.Kernels   // custom operators of runtime/kernels
)

// KernelSet is a set of operators of the domain Kernels.
type KernelSet int

// Sets of operators, each with all of the one before.
const (
	NoKernels     KernelSet = iota
	DeviceKernels           // those of CUDA devices
	CPUKernels              // attention of sequences too
)

// KernelWidth divides the widths that operators of the domain Kernels take.
const KernelWidth = 16

// MaxSequenceRows bounds the length of a sequence for the operators SequenceAttention.
const MaxSequenceRows = 4096

// Graph is a growing set of interned operators.
type Graph struct {
	ops    []*Op
	values int // outputs of ops
	intern map[string]*Op
	inputs map[string]Node
	opset  int64     // standard operator set of its operators, at least Opset
	own    KernelSet // operators of the domain Kernels that it may hold
	fused  bool      // whether attention may be one operator of ONNX Runtime
	err    error
}

// New returns an empty graph.
func New() *Graph {
	g := &Graph{intern: map[string]*Op{}, inputs: map[string]Node{}, opset: Opset}
	if len(registry) == 0 {
		g.Fail("no operators are defined: the program must import promptfed/runtime/ops")
	}
	return g
}

// UseKernels allows builders of layers and gradients to use some operators of the domain Kernels. Only sessions of
// runtime/ort run them, so a graph that leaves the program must not have them.
func (g *Graph) UseKernels(s KernelSet) { g.own = s }

// FuseAttention allows builders of layers to use ONNX Runtime's MultiHeadAttention, of which they take no gradient. In
// float32 it may round more than its parts.
func (g *Graph) FuseAttention() { g.fused = true }

// FusesAttention reports whether FuseAttention was called.
func (g *Graph) FusesAttention() bool { return g.fused }

// HasKernels reports whether the operators of a set are allowed.
func (g *Graph) HasKernels(s KernelSet) bool { return g.own >= s }

// KernelRows reports whether an operator of the domain Kernels can and should take the rows of n. ONNX Runtime computes
// values that depend on no input once, but only with operators of its own.
func (n Node) KernelRows() bool {
	s := n.Shape()
	return n.Graph().HasKernels(DeviceKernels) && n.DType() == Float && len(s) > 0 && s[len(s)-1].Static() &&
		s[len(s)-1].N%KernelWidth == 0 && len(Inputs(n)) > 0
}

// Err returns the first error of building the graph, or nil.
func (g *Graph) Err() error { return g.err }

// need raises the operator set of g to that of a file.
func (g *Graph) need(list []*onnx.OperatorSetIdProto) { g.opset = max(g.opset, onnx.Version(list)) }

// Fail records an error, unless there is one already, and returns a failed node: every operator on it is that node
// again.
func (g *Graph) Fail(format string, a ...any) Node {
	if g.err == nil {
		g.err = fmt.Errorf(format, a...)
	}
	return Node{&value{op: &Op{graph: g, def: failedDef, Kind: failedDef.Kind}}}
}

// Op is one operator: a function of nodes with attributes.
type Op struct {
	graph  *Graph
	def    *Def
	ID     int // in the order of creation, so inputs have smaller IDs
	Domain string
	Kind   string
	Attrs  Attrs
	In     []Node // a zero Node is an omitted optional input
	Uses   []Node // values that its subgraphs (such as the branches of If) read by name
	Out    []Node
	Name   string          // in the imported file; may be empty
	proto  *onnx.NodeProto // as imported, nil otherwise
	data   *Literal        // of a constant
	value  any             // of a placeholder, or the source of an input
}

// Graph returns the graph that o belongs to.
func (o *Op) Graph() *Graph { return o.graph }

// Def returns the definition of the operator, nil for an unknown one.
func (o *Op) Def() *Def { return o.def }

// IsInput reports whether o is an input of its graph.
func (o *Op) IsInput() bool { return o.def == inputDef }

// X returns input i, or a zero Node if there are fewer inputs.
func (o *Op) X(i int) Node {
	if i < len(o.In) {
		return o.In[i]
	}
	return Node{}
}

// Literal returns the content of a constant, nil for other operators.
func (o *Op) Literal() *Literal { return o.data }

// Label returns the operator's name for messages: its kind, with the domain unless that is ONNX's, and its node name in
// a file.
func (o *Op) Label() string { return onnx.Label(onnx.Kind(o.Domain, o.Kind), o.Name) }

type value struct {
	op      *Op
	index   int
	name    string
	dtype   DType
	shape   Shape
	content []Dim // elements of an integer tensor, in row order, if known while building
}

// Node is one output of an operator. The zero Node means no value.
type Node struct{ value *value }

// OK reports whether n is not the zero Node.
func (n Node) OK() bool { return n.value != nil }

// Op returns the operator of n.
func (n Node) Op() *Op { return n.value.op }

// Index returns the number of the operator's output that n is.
func (n Node) Index() int { return n.value.index }

// Graph returns the graph that n belongs to.
func (n Node) Graph() *Graph { return n.value.op.graph }

// Shape returns the shape of n, nil if even the rank is unknown.
func (n Node) Shape() Shape { return n.value.shape }

// Rank returns the number of axes, or -1 if it is unknown.
func (n Node) Rank() int {
	if n.value.shape == nil {
		return -1
	}
	return len(n.value.shape)
}

// Dim returns the static size of axis i (a negative i counts from the end). For an unknown size it records an error and
// returns 1.
func (n Node) Dim(i int) int {
	if i < 0 {
		i += len(n.value.shape)
	}

	if i < 0 || i >= len(n.value.shape) || !n.value.shape[i].Static() {
		n.Graph().Fail("%s: axis %d of shape %v is not a known size", n.Op().Label(), i, n.value.shape)
		return 1
	}

	return n.value.shape[i].N
}

// DType returns the element type.
func (n Node) DType() DType { return n.value.dtype }

// ConstantInts returns the elements of an integer tensor in row order, or nil if they are not known while building.
func (n Node) ConstantInts() []Dim { return n.value.content }

// Ints returns the elements of an integer scalar or vector, or nil if they are not known while building.
func (n Node) Ints() []Dim {
	if len(n.value.shape) > 1 {
		return nil
	}
	return n.value.content
}

// StaticInts returns the elements of an integer scalar or vector if all are static. For the zero Node it returns nil,
// true.
func (n Node) StaticInts() (v []int, ok bool) {
	if !n.OK() {
		return nil, true
	}
	if n.Ints() == nil {
		return nil, false
	}
	return Shape(n.Ints()).Ints()
}

// Name returns the name of an input or of a value in a file; it may be empty.
func (n Node) Name() string { return n.value.name }

func (n Node) String() string { return fmt.Sprintf("%s%v", n.Op().Label(), n.value.shape) }

func (n Node) failed() bool { return n.value != nil && n.value.op.def == failedDef }

// Input declares an input of the graph. The same name returns the same node; the same name with another type or shape
// is an error.
func (g *Graph) Input(name string, dtype DType, shape Shape) Node {
	if n, ok := g.inputs[name]; ok {
		if n.value.dtype != dtype || fmt.Sprint(n.value.shape) != fmt.Sprint(shape) {
			return g.Fail("input %s is both %v%v and %v%v", name, n.value.dtype, n.value.shape, dtype, shape)
		}
		return n
	}

	op := g.add(inputDef, Standard, inputDef.Kind, nil, 1, nil)
	v := op.Out[0].value
	v.name, v.dtype, v.shape = name, dtype, shape
	g.inputs[name] = op.Out[0]
	return op.Out[0]
}

// InputFrom is Input for an input that has a source: a value that says where the input comes from. The text of the
// source is the name of the input.
func (g *Graph) InputFrom(source fmt.Stringer, dtype DType, shape Shape) Node {
	n := g.Input(source.String(), dtype, shape)
	n.value.op.value = source
	return n
}

// Source returns the source of an input; nil for an input without one and for any other node.
func (n Node) Source() any {
	if !n.Op().IsInput() {
		return nil
	}
	return n.value.op.value
}

// InputNamed returns the input called name, if there is one.
func (g *Graph) InputNamed(name string) (Node, bool) {
	n, ok := g.inputs[name]
	return n, ok
}

// Apply adds one operator with a single output.
func (g *Graph) Apply(domain, kind string, attrs Attrs, in ...Node) Node {
	return g.apply(lookup(domain, kind), domain, kind, attrs, 1, in)[0]
}

// ApplyN adds an operator with n outputs, or returns the outputs of an equal one that exists. It drops trailing zero
// inputs.
func (g *Graph) ApplyN(domain, kind string, attrs Attrs, n int, in ...Node) []Node {
	return slices.Clone(g.apply(lookup(domain, kind), domain, kind, attrs, n, in))
}

func (g *Graph) internal(d *Def, attrs Attrs, in ...Node) Node {
	return g.apply(d, d.Domain, d.Kind, attrs, 1, in)[0]
}

// again adds an operator again, under its name, with n outputs and other inputs.
func (g *Graph) again(op *Op, n int, in []Node) []Node {
	out := slices.Clone(g.apply(op.def, op.Domain, op.Kind, op.Attrs, n, in))
	made := out[0].value.op
	made.Name = cmp.Or(made.Name, op.Name)
	if op.value != nil && !out[0].failed() {
		made.value = withNodes(op.value, in)
	}
	return out
}

// apply is ApplyN that may return the operator's own slice of outputs.
func (g *Graph) apply(def *Def, domain, kind string, attrs Attrs, n int, in []Node) []Node {
	for len(in) > 0 && !in[len(in)-1].OK() {
		in = in[:len(in)-1]
	}

	for _, x := range in {
		if x.failed() {
			return slices.Repeat([]Node{x}, n)
		}
		if x.OK() && x.Graph() != g {
			return slices.Repeat([]Node{g.Fail("%s: input %v belongs to another graph", kind, x)}, n)
		}
	}

	key := internKey(def, domain, kind, attrs, n, in)
	if op, ok := g.intern[key]; ok {
		return op.Out
	}

	op := g.add(def, domain, kind, attrs, n, in)
	if err := infer(op); err != nil {
		return slices.Repeat([]Node{g.Fail("%s(%s): %w", op.Label(), describe(in), err)}, n)
	}

	if def != nil {
		g.opset = max(g.opset, def.Since)
	}

	g.intern[key] = op
	return op.Out
}

func (g *Graph) add(def *Def, domain, kind string, attrs Attrs, n int, in []Node) *Op {
	op := &Op{graph: g, def: def, ID: len(g.ops), Domain: domain, Kind: kind, Attrs: attrs, In: slices.Clone(in)}
	for i := range n {
		op.Out = append(op.Out, Node{&value{op: op, index: i}})
	}
	g.ops, g.values = append(g.ops, op), g.values+n
	return op
}

func describe(in []Node) string {
	parts := make([]string, len(in))
	for i, n := range in {
		if n.OK() {
			parts[i] = n.value.shape.String()
		}
	}
	return strings.Join(parts, ", ")
}

func internKey(def *Def, domain, kind string, attrs Attrs, n int, in []Node) string {
	var key strings.Builder
	fmt.Fprintf(&key, "%p %q %q %d", def, domain, kind, n)
	for _, x := range in {
		if x.OK() {
			fmt.Fprintf(&key, " %d.%d", x.value.op.ID, x.value.index)
		} else {
			key.WriteString(" -")
		}
	}

	for _, k := range slices.Sorted(maps.Keys(attrs)) {
		fmt.Fprintf(&key, " %q=%q", k, attrs[k].key())
	}

	return key.String()
}
