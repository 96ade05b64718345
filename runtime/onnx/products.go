package onnx

import "slices"

// Kernels is the domain of the operators that runtime/ort brings along, for the CPU.
const Kernels = "promptfed"

// Packed is a matrix [K,N] as the operator Product reads it: panels [N/panel,K,panel] of columns that lie side by side.
type Packed struct {
	Name       string // of the initializer
	K, N       int64
	Transposed bool // the file has it as [N,K]
}

// Products puts Product where MatMul or FusedMatMul multiplies values that depend on the inputs by a matrix of float32
// that lies in a file, has at least so many numbers, and columns for whole panels. A bias [N], where nothing else reads
// the product, goes into it. Other products stay: of constants ONNX Runtime computes them once. The initializers of
// Packed name the file's place, but have their numbers in another order, so whoever runs the model must give them. m is
// not changed.
func Products(m *ModelProto, panel, least int64) (*ModelProto, []Packed) {
	g := m.GetGraph()
	r := &productRewriter{panel: panel, least: least, tensors: map[string]*TensorProto{}, uses: map[string]int{},
		varies: map[string]bool{}, products: map[string]product{}}
	r.survey(g)
	for _, n := range g.GetNode() {
		r.node(n)
	}
	if len(r.packed) == 0 {
		return m, nil
	}
	out := Shallow(m)
	out.Graph = Shallow(g)
	out.Graph.Node = r.nodes
	out.Graph.Initializer = slices.DeleteFunc(slices.Clone(g.Initializer), func(t *TensorProto) bool {
		return IsExternal(t) && r.uses[t.Name] == 0
	})
	out.Graph.Initializer = append(out.Graph.Initializer, r.panels...)
	if !slices.ContainsFunc(m.OpsetImport, func(o *OperatorSetIdProto) bool { return o.Domain == Kernels }) {
		out.OpsetImport = append(slices.Clone(m.OpsetImport), &OperatorSetIdProto{Domain: Kernels, Version: 1})
	}
	return out, r.packed
}

type productRewriter struct {
	panel, least int64
	tensors      map[string]*TensorProto // initializers that no input can replace
	uses         map[string]int          // of a value, by nodes, their graphs and the outputs
	varies       map[string]bool         // with the inputs
	nodes        []*NodeProto
	products     map[string]product // by output, those that may take a bias
	packed       []Packed
	panels       []*TensorProto // their initializers
}

// product is one with so many columns.
type product struct {
	node    *NodeProto
	columns int64
}

func (r *productRewriter) survey(g *GraphProto) {
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
		for _, name := range append(FreeNames(n), n.Input...) {
			r.uses[name]++
			varies = varies || r.varies[name]
		}
		for _, name := range n.Output {
			r.varies[name] = varies
		}
	}
}

// node takes over a node, changed or not.
func (r *productRewriter) node(n *NodeProto) {
	if p, ok := r.matrix(n); ok {
		matrix := r.tensors[n.Input[1]]
		if r.uses[matrix.Name]--; !slices.Contains(r.packed, p) {
			r.packed = append(r.packed, p)
			r.panels = append(r.panels, &TensorProto{Name: p.Name, DataType: matrix.DataType,
				Dims: []int64{p.N / r.panel, p.K, r.panel}, DataLocation: matrix.DataLocation,
				ExternalData: matrix.ExternalData})
		}
		n = &NodeProto{Domain: Kernels, OpType: "Product", Name: n.Name, Output: n.Output,
			Input: []string{n.Input[0], p.Name}, Attribute: []*AttributeProto{{Name: "alpha",
				Type: AttributeProto_FLOAT, F: alpha(n)}}}
		r.products[n.Output[0]] = product{n, p.N}
	} else if len(n.Input) == 2 && n.OpType == "Add" && Standard(n.Domain) &&
		(r.bias(n, n.Input[0], n.Input[1]) || r.bias(n, n.Input[1], n.Input[0])) {
		return
	}
	r.nodes = append(r.nodes, n)
}

// matrix tells what a node multiplies by, if that can be packed.
func (r *productRewriter) matrix(n *NodeProto) (p Packed, ok bool) {
	fused := n.OpType == "FusedMatMul" && n.Domain == Microsoft
	if !fused && (n.OpType != "MatMul" || !Standard(n.Domain)) || len(n.Input) != 2 || len(n.Output) != 1 ||
		!r.varies[n.Input[0]] {
		return p, false
	}
	t := r.tensors[n.Input[1]]
	if t == nil || len(t.Dims) != 2 || !IsExternal(t) || t.DataType != int32(TensorProto_FLOAT) {
		return p, false
	}
	p = Packed{Name: Kernels + "/" + t.Name, K: t.Dims[0], N: t.Dims[1]}
	for _, a := range n.Attribute {
		switch {
		case a.Name == "transB" && a.I == 1:
			p.Transposed, p.Name, p.K, p.N = true, p.Name+"/transposed", p.N, p.K
		case a.Name != "alpha" && a.I != 0:
			return p, false
		}
	}
	at, err := ExternalOf(t)
	return p, err == nil && at.Offset%4 == 0 && p.N%r.panel == 0 && at.Length/4 >= r.least
}

// alpha is what a product is multiplied by.
func alpha(n *NodeProto) float32 {
	for _, a := range n.Attribute {
		if a.Name == "alpha" {
			return a.F
		}
	}
	return 1
}

// bias lets the product that a node adds a bias to add it.
func (r *productRewriter) bias(n *NodeProto, sum, bias string) bool {
	p, found := r.products[sum]
	b := r.tensors[bias]
	if !found || r.uses[sum] != 1 || b == nil || b.DataType != int32(TensorProto_FLOAT) ||
		!slices.Equal(b.Dims, []int64{p.columns}) || len(n.Output) != 1 {
		return false
	}
	p.node.Input, p.node.Output = append(p.node.Input, bias), n.Output
	delete(r.products, sum)
	return true
}
