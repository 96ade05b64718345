package onnx

import "slices"

// Kernels is the domain of the operators that runtime/ort brings along, for the CPU.
const Kernels = "promptfed"

// Packed is a matrix [K,N] as the operator Product reads it: panels [N/panel,K,panel] of columns that lie side by side.
type Packed struct {
	Name       string   // of the initializer
	At         External // where the numbers lie, row by row
	K, N       int64
	Transposed bool // they lie there as [N,K]
}

// Products puts Product where MatMul or FusedMatMul multiplies values that depend on the inputs by a matrix of float32
// that lies in a file, has at least so many numbers, and columns for whole panels. A bias [N], where nothing else reads
// the product, goes into it. Other products stay: of constants ONNX Runtime computes them once. The initializers of
// Packed name the file's place, but have their numbers in another order, so whoever runs the model must give them. m is
// not changed.
func Products(m *ModelProto, panel, least int64) (*ModelProto, []Packed) {
	g := m.GetGraph()
	r := &productRewriter{panel: panel, least: least, tensors: map[string]*TensorProto{}, uses: map[string]int{},
		varies: map[string]bool{}, packed: map[string]bool{}, products: map[string]*NodeProto{}}
	r.survey(g)
	for _, n := range g.GetNode() {
		r.node(n)
	}
	if len(r.list) == 0 {
		return m, nil
	}
	out := Shallow(m)
	out.Graph = Shallow(g)
	out.Graph.Node = r.nodes
	out.Graph.Initializer = slices.DeleteFunc(slices.Clone(g.Initializer), func(t *TensorProto) bool {
		return IsExternal(t) && r.uses[t.Name] == 0
	})
	for _, p := range r.list {
		out.Graph.Initializer = append(out.Graph.Initializer, &TensorProto{Name: p.Name,
			DataType: int32(TensorProto_FLOAT), Dims: []int64{p.N / panel, p.K, panel},
			DataLocation: TensorProto_EXTERNAL, ExternalData: r.tensors[p.matrix].ExternalData})
	}
	if !slices.ContainsFunc(m.OpsetImport, func(o *OperatorSetIdProto) bool { return o.Domain == Kernels }) {
		out.OpsetImport = append(slices.Clone(m.OpsetImport), &OperatorSetIdProto{Domain: Kernels, Version: 1})
	}
	packed := make([]Packed, len(r.list))
	for i, p := range r.list {
		packed[i] = p.Packed
	}
	return out, packed
}

type productRewriter struct {
	panel, least int64
	tensors      map[string]*TensorProto // initializers that no input can replace
	uses         map[string]int          // of a value, by nodes, their graphs and the outputs
	varies       map[string]bool         // with the inputs
	nodes        []*NodeProto
	products     map[string]*NodeProto // by output
	packed       map[string]bool
	list         []packedMatrix
}

type packedMatrix struct {
	Packed
	matrix string
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
		if r.uses[p.matrix]--; !r.packed[p.Name] {
			r.packed[p.Name] = true
			r.list = append(r.list, p)
		}
		product := &NodeProto{Domain: Kernels, OpType: "Product", Name: n.Name, Output: n.Output,
			Input: []string{n.Input[0], p.Name}, Attribute: []*AttributeProto{{Name: "alpha",
				Type: AttributeProto_FLOAT, F: alpha(n)}}}
		r.products[n.Output[0]] = product
		n = product
	} else if len(n.Input) == 2 && n.OpType == "Add" && Standard(n.Domain) &&
		(r.bias(n, n.Input[0], n.Input[1]) || r.bias(n, n.Input[1], n.Input[0])) {
		return
	}
	r.nodes = append(r.nodes, n)
}

// matrix tells what a node multiplies by, if that can be packed.
func (r *productRewriter) matrix(n *NodeProto) (p packedMatrix, ok bool) {
	fused := n.OpType == "FusedMatMul" && n.Domain == "com.microsoft"
	if !fused && (n.OpType != "MatMul" || !Standard(n.Domain)) || len(n.Input) != 2 || len(n.Output) != 1 ||
		!r.varies[n.Input[0]] {
		return p, false
	}
	t := r.tensors[n.Input[1]]
	if t == nil || len(t.Dims) != 2 || !IsExternal(t) || t.DataType != int32(TensorProto_FLOAT) {
		return p, false
	}
	p = packedMatrix{Packed{Name: Kernels + "/" + t.Name, K: t.Dims[0], N: t.Dims[1]}, t.Name}
	for _, a := range n.Attribute {
		switch {
		case a.Name == "transB" && a.I == 1:
			p.Transposed, p.Name, p.K, p.N = true, p.Name+"/transposed", p.N, p.K
		case a.Name != "alpha" && a.I != 0:
			return p, false
		}
	}
	at, err := ExternalOf(t)
	p.At = at
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
func (r *productRewriter) bias(n *NodeProto, product, bias string) bool {
	made, b := r.products[product], r.tensors[bias]
	if made == nil || len(made.Input) != 2 || r.uses[product] != 1 || b == nil || len(n.Output) != 1 ||
		b.DataType != int32(TensorProto_FLOAT) {
		return false
	}
	for _, p := range r.list {
		if p.Name == made.Input[1] && slices.Equal(b.Dims, []int64{p.N}) {
			made.Input, made.Output = append(made.Input, bias), n.Output
			delete(r.products, product)
			return true
		}
	}
	return false
}
