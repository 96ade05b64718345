package kernels

import (
	"slices"

	"promptfed/runtime/onnx"
)

// PackedMatrix is a matrix [K,N] in the layout that the operator Product reads: panels [N/Panel,K,Panel] of adjacent
// columns.
type PackedMatrix struct {
	Name       string // of the initializer
	K, N       int64
	Panel      int64
	Transposed bool // the file stores the matrix as [N,K]
}

// RewriteProducts replaces MatMul and FusedMatMul by Product if the left input depends on the inputs of the graph and
// the right input is a float32 matrix in a file, has at least minProduct elements, and has whole panels of columns. If
// only an Add reads the result and adds a bias [N], then Product adds the bias too, and likewise the other operand of a
// Sum, which LayerNormGrad can add as well. Other products stay, because ONNX Runtime computes products of constants
// once. The initializers of the packed matrices name the place in the file, but their elements are in another order:
// the caller supplies them (PackedMatrix.Pack). m is not changed. The width of the panels selects the instruction set
// of a Product.
func RewriteProducts(m *onnx.ModelProto, s InstructionSet) (*onnx.ModelProto, []PackedMatrix) {
	return rewriteProducts(m, int64(s.form.panel), minProduct)
}

func rewriteProducts(model *onnx.ModelProto, panel, least int64) (*onnx.ModelProto, []PackedMatrix) {
	graph := model.GetGraph()
	rewriter := newRewriter(graph)
	rewriter.panel, rewriter.least = panel, least
	for _, n := range graph.GetNode() {
		rewriter.node(n)
	}

	if len(rewriter.packed) == 0 {
		return model, nil
	}

	out := rewriter.rewritten(model)
	out.Graph.Initializer = slices.DeleteFunc(slices.Clone(graph.Initializer), func(t *onnx.TensorProto) bool {
		return onnx.IsExternal(t) && rewriter.uses[t.Name] == 0
	})
	out.Graph.Initializer = append(out.Graph.Initializer, rewriter.panels...)
	return out, rewriter.packed
}

type productRewriter struct {
	panel, least int64
	tensors      map[string]*onnx.TensorProto // initializers that no input can replace
	uses         map[string]int               // of a value: by nodes, their subgraphs and the outputs
	varies       map[string]bool              // whether a value depends on the inputs
	nodes        []*onnx.NodeProto            // nil where a later node took over
	sums         map[string]sum               // by output
	packed       []PackedMatrix
	panels       []*onnx.TensorProto // the initializers of packed
}

// sum is a node that can add another value to its result: a bias, and as the given input a value of the result's shape.
type sum struct {
	node  *onnx.NodeProto
	at    int   // in productRewriter.nodes
	bias  int64 // numbers of a bias; 0 where it adds none
	input int
}

func newRewriter(graph *onnx.GraphProto) *productRewriter {
	rewriter := &productRewriter{tensors: map[string]*onnx.TensorProto{}, uses: map[string]int{},
		varies: map[string]bool{},
		sums:   map[string]sum{}}
	for _, t := range graph.GetInitializer() {
		rewriter.tensors[t.Name] = t
	}

	for _, v := range graph.GetInput() {
		delete(rewriter.tensors, v.Name)
		rewriter.varies[v.Name] = true
	}

	for _, v := range graph.GetOutput() {
		rewriter.uses[v.Name]++
	}

	for _, n := range graph.GetNode() {
		varies := false
		for _, name := range append(onnx.OuterNames(n), n.Input...) {
			rewriter.uses[name]++
			varies = varies || rewriter.varies[name]
		}
		for _, name := range n.Output {
			rewriter.varies[name] = varies
		}
	}

	return rewriter
}

// rewritten returns a copy of the model with the rewriter's nodes.
func (r *productRewriter) rewritten(model *onnx.ModelProto) *onnx.ModelProto {
	out := onnx.ShallowCopy(model)
	out.Graph = onnx.ShallowCopy(model.Graph)
	out.Graph.Node = slices.DeleteFunc(r.nodes, func(n *onnx.NodeProto) bool { return n == nil })
	if !slices.ContainsFunc(model.OpsetImport,
		func(o *onnx.OperatorSetIdProto) bool { return o.Domain == onnx.Kernels }) {
		out.OpsetImport = append(slices.Clone(model.OpsetImport), &onnx.OperatorSetIdProto{Domain: onnx.Kernels,
			Version: 1})
	}

	return out
}

func (r *productRewriter) node(node *onnx.NodeProto) {
	if packedMatrix, ok := r.matrix(node); ok {
		matrix := r.tensors[node.Input[1]]
		if r.uses[matrix.Name]--; !slices.Contains(r.packed, packedMatrix) {
			r.packed = append(r.packed, packedMatrix)
			panels := onnx.ShallowCopy(matrix)
			panels.Name, panels.Dims = packedMatrix.Name, []int64{packedMatrix.N / packedMatrix.Panel, packedMatrix.K,
				packedMatrix.Panel}
			r.panels = append(r.panels, panels)
		}
		node = &onnx.NodeProto{Domain: onnx.Kernels, OpType: "Product", Name: node.Name, Output: node.Output,
			Input: []string{node.Input[0], packedMatrix.Name}, Attribute: []*onnx.AttributeProto{{Name: "alpha",
				Type: onnx.AttributeProto_FLOAT, F: alpha(node)}}}
		r.sums[node.Output[0]] = sum{node, len(r.nodes), packedMatrix.N, 3}
	} else if r.sum(node) {
		return
	}

	r.nodes = append(r.nodes, node)
}

// sum notes a gradient of layer norm, which can add a value, or moves a sum into the node that computes an operand. It
// reports whether the sum moved.
func (r *productRewriter) sum(node *onnx.NodeProto) (moved bool) {
	if node.OpType == "LayerNormGrad" && own(node) && len(node.Input) == 5 {
		r.sums[node.Output[0]] = sum{node, len(r.nodes), 0, 5}
	}
	return len(node.Input) == 2 && len(node.Output) == 1 && (r.added(node, node.Input[0], node.Input[1]) ||
		r.added(node, node.Input[1], node.Input[0]))
}

func (r *productRewriter) matrix(node *onnx.NodeProto) (matrix PackedMatrix, ok bool) {
	fused := node.OpType == "FusedMatMul" && node.Domain == onnx.Microsoft
	if !fused && (node.OpType != "MatMul" || !onnx.Standard(node.Domain)) || len(node.Input) != 2 ||
		len(node.Output) != 1 || !r.varies[node.Input[0]] {
		return matrix, false
	}

	proto := r.tensors[node.Input[1]]
	if proto == nil || len(proto.Dims) != 2 || !onnx.IsExternal(proto) ||
		proto.DataType != int32(onnx.TensorProto_FLOAT) {
		return matrix, false
	}

	matrix = PackedMatrix{Name: onnx.Kernels + "/" + proto.Name, K: proto.Dims[0], N: proto.Dims[1], Panel: r.panel}
	for _, a := range node.Attribute {
		switch {
		case a.Name == "transB" && a.I == 1:
			matrix.Transposed, matrix.Name, matrix.K, matrix.N = true, matrix.Name+"/transposed", matrix.N, matrix.K
		case a.Name != "alpha" && a.I != 0:
			return matrix, false
		}
	}

	at, err := onnx.ExternalOf(proto)
	return matrix, err == nil && at.Offset%4 == 0 && matrix.N%r.panel == 0 && at.Length/4 >= r.least
}

func alpha(n *onnx.NodeProto) float32 {
	if a := onnx.Attribute(n, "alpha"); a != nil {
		return a.F
	}
	return 1
}

// added moves the addition of a value, node, into the node that computes the sum, to the place of node, if it can.
func (r *productRewriter) added(node *onnx.NodeProto, name, value string) bool {
	adder, found := r.sums[name]
	b, input := r.tensors[value], adder.input
	switch {
	case !found || r.uses[name] != 1:
		return false
	case node.OpType == "AddSameShape" && own(node):
	case node.OpType == "Add" && onnx.Standard(node.Domain) && adder.bias > 0 && b != nil &&
		b.DataType == int32(onnx.TensorProto_FLOAT) && slices.Equal(b.Dims, []int64{adder.bias}):
		input = 2
	default:
		return false
	}

	m := onnx.ShallowCopy(adder.node)
	m.Input = append(slices.Clone(m.Input), make([]string, input-len(m.Input))...)
	m.Input, m.Output = append(m.Input, value), node.Output
	r.nodes[adder.at] = nil
	if input == 2 {
		r.sums[node.Output[0]] = sum{m, len(r.nodes), 0, adder.input}
	}

	r.nodes = append(r.nodes, m)
	return true
}
