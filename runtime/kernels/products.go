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

func rewriteProducts(m *onnx.ModelProto, panel, least int64) (*onnx.ModelProto, []PackedMatrix) {
	g := m.GetGraph()
	r := &productRewriter{panel: panel, least: least, tensors: map[string]*onnx.TensorProto{}, uses: map[string]int{},
		varies: map[string]bool{}, sums: map[string]sum{}}
	r.survey(g)
	for _, n := range g.GetNode() {
		r.node(n)
	}
	if len(r.packed) == 0 {
		return m, nil
	}
	out := onnx.ShallowCopy(m)
	out.Graph = onnx.ShallowCopy(g)
	out.Graph.Node = slices.DeleteFunc(r.nodes, func(n *onnx.NodeProto) bool { return n == nil })
	out.Graph.Initializer = slices.DeleteFunc(slices.Clone(g.Initializer), func(t *onnx.TensorProto) bool {
		return onnx.IsExternal(t) && r.uses[t.Name] == 0
	})
	out.Graph.Initializer = append(out.Graph.Initializer, r.panels...)
	own := &onnx.OperatorSetIdProto{Domain: onnx.Kernels, Version: 1}
	if !slices.ContainsFunc(m.OpsetImport, func(o *onnx.OperatorSetIdProto) bool { return o.Domain == own.Domain }) {
		out.OpsetImport = append(slices.Clone(m.OpsetImport), own)
	}
	return out, r.packed
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

func (r *productRewriter) survey(g *onnx.GraphProto) {
	for _, t := range g.GetInitializer() {
		r.tensors[t.Name] = t
	}
	for _, v := range g.GetInput() {
		delete(r.tensors, v.Name)
		r.varies[v.Name] = true
	}
	for _, v := range g.GetOutput() {
		r.uses[v.Name]++
	}
	for _, n := range g.GetNode() {
		varies := false
		for _, name := range append(onnx.OuterNames(n), n.Input...) {
			r.uses[name]++
			varies = varies || r.varies[name]
		}
		for _, name := range n.Output {
			r.varies[name] = varies
		}
	}
}

func (r *productRewriter) node(n *onnx.NodeProto) {
	if p, ok := r.matrix(n); ok {
		matrix := r.tensors[n.Input[1]]
		if r.uses[matrix.Name]--; !slices.Contains(r.packed, p) {
			r.packed = append(r.packed, p)
			panels := onnx.ShallowCopy(matrix)
			panels.Name, panels.Dims = p.Name, []int64{p.N / p.Panel, p.K, p.Panel}
			r.panels = append(r.panels, panels)
		}
		n = &onnx.NodeProto{Domain: onnx.Kernels, OpType: "Product", Name: n.Name, Output: n.Output,
			Input: []string{n.Input[0], p.Name}, Attribute: []*onnx.AttributeProto{{Name: "alpha",
				Type: onnx.AttributeProto_FLOAT, F: alpha(n)}}}
		r.sums[n.Output[0]] = sum{n, len(r.nodes), p.N, 3}
	} else if n.OpType == "LayerNormGrad" && n.Domain == onnx.Kernels && len(n.Input) == 5 {
		r.sums[n.Output[0]] = sum{n, len(r.nodes), 0, 5}
	} else if len(n.Input) == 2 && len(n.Output) == 1 && (r.added(n, n.Input[0], n.Input[1]) ||
		r.added(n, n.Input[1], n.Input[0])) {
		return
	}
	r.nodes = append(r.nodes, n)
}

func (r *productRewriter) matrix(n *onnx.NodeProto) (p PackedMatrix, ok bool) {
	fused := n.OpType == "FusedMatMul" && n.Domain == onnx.Microsoft
	if !fused && (n.OpType != "MatMul" || !onnx.Standard(n.Domain)) || len(n.Input) != 2 || len(n.Output) != 1 ||
		!r.varies[n.Input[0]] {
		return p, false
	}
	t := r.tensors[n.Input[1]]
	if t == nil || len(t.Dims) != 2 || !onnx.IsExternal(t) || t.DataType != int32(onnx.TensorProto_FLOAT) {
		return p, false
	}
	p = PackedMatrix{Name: onnx.Kernels + "/" + t.Name, K: t.Dims[0], N: t.Dims[1], Panel: r.panel}
	for _, a := range n.Attribute {
		switch {
		case a.Name == "transB" && a.I == 1:
			p.Transposed, p.Name, p.K, p.N = true, p.Name+"/transposed", p.N, p.K
		case a.Name != "alpha" && a.I != 0:
			return p, false
		}
	}
	at, err := onnx.ExternalOf(t)
	return p, err == nil && at.Offset%4 == 0 && p.N%r.panel == 0 && at.Length/4 >= r.least
}

func alpha(n *onnx.NodeProto) float32 {
	for _, a := range n.Attribute {
		if a.Name == "alpha" {
			return a.F
		}
	}
	return 1
}

// added moves the addition n of a value into the node that computes the sum, to n's place, if it can.
func (r *productRewriter) added(n *onnx.NodeProto, name, value string) bool {
	s, found := r.sums[name]
	b, input := r.tensors[value], s.input
	switch {
	case !found || r.uses[name] != 1:
		return false
	case n.OpType == "Sum" && n.Domain == onnx.Kernels:
	case n.OpType == "Add" && onnx.Standard(n.Domain) && s.bias > 0 && b != nil &&
		b.DataType == int32(onnx.TensorProto_FLOAT) && slices.Equal(b.Dims, []int64{s.bias}):
		input = 2
	default:
		return false
	}
	m := onnx.ShallowCopy(s.node)
	m.Input = append(slices.Clone(m.Input), make([]string, input-len(m.Input))...)
	m.Input, m.Output = append(m.Input, value), n.Output
	r.nodes[s.at] = nil
	if input == 2 {
		r.sums[n.Output[0]] = sum{m, len(r.nodes), 0, s.input}
	}
	r.nodes = append(r.nodes, m)
	return true
}
