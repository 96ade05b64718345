package onnx

import (
	"slices"

	"google.golang.org/protobuf/proto"
)

// LowerPrecision returns a model that computes the products of a model's stored weights in a lower precision, FLOAT16
// or BFLOAT16, as PyTorch's autocast does: a product has operands and a result of low precision if an operand is a
// stored weight, whose elements lie in a file, or has low precision already. Operators that only move, add, scale or
// gate elements follow their inputs: their result has low precision if every input has it or is constant. Everything
// else is computed in float32: normalisation, softmax, sums, losses, and what these meet. Inputs, outputs and subgraphs
// keep their types. Cast nodes convert weights; ONNX Runtime computes them once.
func LowerPrecision(model *ModelProto, low TensorProto_DataType) *ModelProto {
	model = proto.Clone(model).(*ModelProto)
	graph := model.GetGraph()
	lowering := &lowering{low: low, opset: Version(model.OpsetImport), lowName: map[string]string{},
		lowered: map[string]bool{},
		onlyLow: map[string]bool{}, weights: map[string]bool{}, constants: map[string]*NodeProto{},
		names: map[string]bool{}}
	for _, t := range graph.Initializer {
		lowering.names[t.Name] = true
		if t.DataType == int32(TensorProto_FLOAT) {
			lowering.constants[t.Name], lowering.weights[t.Name] = nil, IsExternal(t) && len(t.Dims) > 1
		}
	}

	for _, v := range graph.Input {
		lowering.names[v.Name] = true
	}

	for _, n := range graph.Node {
		for _, name := range n.Output {
			lowering.names[name] = true
		}
	}

	for _, n := range graph.Node {
		lowering.add(n)
	}

	for _, v := range graph.Output {
		lowering.high(v.Name)
	}

	graph.Node = UsedNodes(lowering.out, graph.Output)
	graph.ValueInfo = slices.DeleteFunc(graph.ValueInfo,
		func(v *ValueInfoProto) bool { return lowering.onlyLow[v.Name] })
	return model
}

// lowering is the state of LowerPrecision.
type lowering struct {
	low       TensorProto_DataType
	opset     int64
	lowName   map[string]string     // names of the versions of low precision
	lowered   map[string]bool       // values that are computed in low precision
	onlyLow   map[string]bool       // of these, those without a version of float32
	constants map[string]*NodeProto // float32 values that follow from constants, with a node that moves one
	weights   map[string]bool       // of these, stored matrices and larger ones
	names     map[string]bool
	out       []*NodeProto
}

// products are the operators that are computed in low precision.
var products = []string{"MatMul", "Gemm", "Conv", Microsoft + ".FusedMatMul", Microsoft + ".MultiHeadAttention"}

// integers are the inputs of products that hold no elements.
var integers = map[string][]int{Microsoft + ".MultiHeadAttention": {4, 8, 9}}

// followers are operators that a device computes in each precision, with the number of their inputs that hold elements,
// 0 for all.
var followers = map[string]int{"Add": 0, "Sub": 0, "Mul": 0, "Concat": 0, "Neg": 1, "Sigmoid": 1, "Relu": 1,
	"Identity": 1, "Transpose": 1, "Reshape": 1, "Squeeze": 1, "Unsqueeze": 1, "Slice": 1, "Split": 1, "Expand": 1,
	"Gather": 1, Microsoft + ".QuickGelu": 1}

// moves are the followers that a weight can pass through.
var moves = []string{"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Identity"}

// add adds a node in the precision that it has.
func (l *lowering) add(node *NodeProto) {
	kind := Kind(node.Domain, node.OpType)
	count, follows := followers[kind]
	data := slices.Clone(node.Input)
	for _, i := range integers[kind] {
		if i < len(data) {
			data[i] = ""
		}
	}

	if count > 0 {
		data = data[:min(count, len(data))]
	}

	switch {
	case slices.Contains(products, kind) && l.computes(node) && slices.ContainsFunc(data, l.isLowOrWeight):
		l.lower(node, data)
	case follows && slices.ContainsFunc(data, l.isLow) && !slices.ContainsFunc(data, l.isHigh):
		l.lower(node, data)
	case slices.Contains(moves, kind) && l.isConstant(node.Input[0]):
		l.constants[node.Output[0]], l.weights[node.Output[0]] = node, l.weights[node.Input[0]]
		l.keep(node)
	case follows && !slices.ContainsFunc(data, func(name string) bool { return !l.isConstant(name) }):
		l.constants[node.Output[0]] = nil
		l.keep(node)
	default:
		l.keep(node)
	}
}

// computes reports whether devices compute a product in low precision.
func (l *lowering) computes(n *NodeProto) bool {
	return n.OpType != "Conv" || l.low == TensorProto_FLOAT16 || l.opset >= 22
}

func (l *lowering) isConstant(name string) bool {
	_, ok := l.constants[name]
	return ok
}

func (l *lowering) isLow(name string) bool { return l.lowered[name] }

func (l *lowering) isLowOrWeight(name string) bool { return l.weights[name] || l.lowered[name] }

func (l *lowering) isHigh(name string) bool {
	return name != "" && !l.lowered[name] && !l.isConstant(name)
}

// lower adds a node whose inputs in data and whose outputs have low precision.
func (l *lowering) lower(node *NodeProto, data []string) {
	node = proto.Clone(node).(*NodeProto)
	for i, name := range data {
		if name != "" {
			node.Input[i] = l.lowVersion(name)
		}
	}

	for i, name := range node.Output {
		if name != "" {
			node.Output[i] = l.newName(name)
			l.lowName[name], l.lowered[name], l.onlyLow[name] = node.Output[i], true, true
		}
	}

	l.out = append(l.out, node)
}

// keep adds a node that computes in float32.
func (l *lowering) keep(n *NodeProto) {
	for _, name := range slices.Concat(n.Input, OuterNames(n)) {
		l.high(name)
	}
	l.out = append(l.out, n)
}

// high makes sure that the float32 version of a value exists.
func (l *lowering) high(name string) {
	if l.onlyLow[name] {
		l.cast(l.lowName[name], name, TensorProto_FLOAT)
		l.onlyLow[name] = false
	}
}

// lowVersion returns the name of the version of low precision, which it makes where there is none. A moved weight is
// converted before it is moved, so that ONNX Runtime can fuse the move with a product.
func (l *lowering) lowVersion(name string) string {
	if low := l.lowName[name]; low != "" {
		return low
	}

	low := l.newName(name)
	l.lowName[name] = low
	if move := l.constants[name]; move != nil {
		move = proto.Clone(move).(*NodeProto)
		move.Name, move.Input[0], move.Output[0] = "", l.lowVersion(move.Input[0]), low
		l.out = append(l.out, move)
	} else {
		l.cast(name, low, l.low)
	}

	return low
}

func (l *lowering) newName(name string) string {
	for name += "_low"; l.names[name]; name += "_" {
	}
	l.names[name] = true
	return name
}

func (l *lowering) cast(from, to string, kind TensorProto_DataType) {
	l.out = append(l.out, castNode(from, to, kind))
}

// UsedNodes returns the nodes, in their order, that outputs and subgraphs need.
func UsedNodes(nodes []*NodeProto, outputs []*ValueInfoProto) []*NodeProto {
	need := map[string]bool{}
	for _, v := range outputs {
		need[v.Name] = true
	}

	kept := make([]*NodeProto, 0, len(nodes))
	for _, n := range slices.Backward(nodes) {
		if !slices.ContainsFunc(n.Output, func(name string) bool { return need[name] }) {
			continue
		}
		kept = append(kept, n)
		for _, name := range slices.Concat(n.Input, OuterNames(n)) {
			need[name] = true
		}
	}

	slices.Reverse(kept)
	return kept
}
