package kernels

import (
	"slices"

	"promptfed/runtime/onnx"
)

// ForDevice returns a model for a device, in which operators of this package do more at once. It changes only models
// with such operators. low is the precision of products (onnx.LowerPrecision), 0 for float32:
//
//   - Where AddSameShape adds a value to a product of a stored matrix and a bias, one operator adds both, and
//     LayerNormGrad adds what is added to its result.
//   - Where operators of low precision feed an operator or read its result, it reads and writes low precision itself,
//     without Cast, under the name of its kind and the precision. Only the sum of a product, a bias and a value is
//     rounded less often than before.
func ForDevice(model *onnx.ModelProto, low onnx.TensorProto_DataType) *onnx.ModelProto {
	if !slices.ContainsFunc(model.GetGraph().GetNode(), own) {
		return model
	}

	model = joinSums(model, low)
	if low != 0 {
		model = joinCasts(model, low)
	}

	return model
}

func own(n *onnx.NodeProto) bool { return n.Domain == onnx.Kernels }

// lowKind returns the name of an operator for a precision of products.
func lowKind(kind string, low onnx.TensorProto_DataType) string {
	return kind + map[onnx.TensorProto_DataType]string{onnx.TensorProto_FLOAT16: "_float16",
		onnx.TensorProto_BFLOAT16: "_bfloat16"}[low]
}

// castTo reports whether a node converts to a type.
func castTo(n *onnx.NodeProto, kind onnx.TensorProto_DataType) bool {
	return n.OpType == "Cast" && onnx.Standard(n.Domain) && len(n.Attribute) == 1 && n.Attribute[0].I == int64(kind)
}

// joinSums joins sums with what computes one of their operands.
func joinSums(model *onnx.ModelProto, low onnx.TensorProto_DataType) *onnx.ModelProto {
	rewriter := newRewriter(model.GetGraph())
	stored := func(name string) *onnx.TensorProto { return rewriter.tensors[name] }
	columns := map[string]int64{}       // of products
	biased := map[string]sum{}          // products with a bias, of low precision
	lowered := map[string]string{}      // initializers by their versions of low precision
	original := func(n string) string { // of a version of low precision, or n
		if name, ok := lowered[n]; ok {
			return name
		}
		return n
	}

	for _, node := range model.GetGraph().GetNode() {
		two := len(node.Input) == 2 && len(node.Output) == 1
		switch kind := node.OpType; {
		case low != 0 && castTo(node, low) && stored(node.Input[0]) != nil:
			lowered[node.Output[0]] = node.Input[0]
		case low != 0 && castTo(node, onnx.TensorProto_FLOAT) && rewriter.uses[node.Input[0]] == 1:
			if s, ok := biased[node.Input[0]]; ok {
				rewriter.sums[node.Output[0]] = sum{s.node, len(rewriter.nodes), 0, 2}
			}
		case two && (kind == "MatMul" || kind == "FusedMatMul"):
			if w := stored(original(node.Input[1])); w != nil && len(w.Dims) == 2 {
				columns[node.Output[0]] = w.Dims[1]
				if onnx.Attribute(node, "transB").GetI() != 0 {
					columns[node.Output[0]] = w.Dims[0]
				}
			}
		case two && kind == "Add" && onnx.Standard(node.Domain):
			b, n := stored(original(node.Input[1])), columns[node.Input[0]]
			if n == 0 || n%16 != 0 || b == nil || !slices.Equal(b.Dims, []int64{n}) {
				break
			}
			both := &onnx.NodeProto{Domain: onnx.Kernels, OpType: "AddBiasSameShape", Input: []string{node.Input[0],
				original(node.Input[1])}}
			if both.Input[1] == node.Input[1] {
				rewriter.sums[node.Output[0]] = sum{both, len(rewriter.nodes), 0, 2}
			} else {
				both.OpType = lowKind(both.OpType, low)
				biased[node.Output[0]] = sum{node: both}
			}
		case rewriter.sum(node):
			continue
		}
		rewriter.nodes = append(rewriter.nodes, node)
	}

	return rewriter.rewritten(model)
}

// lowers are the operators with a form of low precision, by the indices of the inputs and the outputs that have it (see
// kernels.c). LayerNormGrad has the output of low precision beside that of float32.
var lowers = map[string]struct{ in, out []int }{
	"BiasQuickGelu": {[]int{0}, []int{0}}, "BiasQuickGeluGrad": {[]int{0, 2}, []int{0}}, "LayerNorm": {nil, []int{0}},
	"LayerNormGrad": {[]int{4}, nil}, "Attention": {[]int{0}, []int{0}}, "AttentionGrad": {[]int{0, 3, 4}, []int{0}},
}

// caster finds operators that can read and write low precision themselves.
type caster struct {
	low     onnx.TensorProto_DataType
	source  map[string]string // the value of low precision that a Cast converts to float32
	readers map[string][]*onnx.NodeProto
	kept    map[string]bool // values that keep their names: of results, and those that subgraphs read
	chosen  map[*onnx.NodeProto]bool
	from    map[string]*onnx.NodeProto
}

func joinCasts(model *onnx.ModelProto, low onnx.TensorProto_DataType) *onnx.ModelProto {
	graph := model.GetGraph()
	caster := &caster{low: low, source: map[string]string{}, readers: map[string][]*onnx.NodeProto{},
		kept: map[string]bool{}, chosen: map[*onnx.NodeProto]bool{}, from: map[string]*onnx.NodeProto{}}
	caster.survey(graph)
	for again := true; again; { // a node that cannot change leaves its neighbours a Cast
		again = false
		for n := range caster.chosen {
			if !caster.fits(n) {
				delete(caster.chosen, n)
				again = true
			}
		}
	}

	rename := map[string]string{} // versions of low precision, by the names of their Casts' results
	var nodes []*onnx.NodeProto
	for _, node := range graph.Node {
		if caster.chosen[node] {
			node = caster.lowered(node, rename)
		} else if name := rename[node.GetOutput()[0]]; name != "" {
			continue // a Cast of what has low precision already
		} else if slices.ContainsFunc(node.Input, func(name string) bool { return rename[name] != "" }) {
			node = onnx.ShallowCopy(node)
			node.Input = slices.Clone(node.Input)
			for i, name := range node.Input {
				if to := rename[name]; to != "" {
					node.Input[i] = to
				}
			}
		}
		nodes = append(nodes, node)
	}

	out := onnx.ShallowCopy(model)
	out.Graph = onnx.ShallowCopy(graph)
	out.Graph.Node = onnx.UsedNodes(nodes, graph.Output)
	return out
}

func (c *caster) survey(graph *onnx.GraphProto) {
	isLow := map[string]bool{}
	for _, node := range graph.Node {
		outer := onnx.OuterNames(node)
		for _, name := range outer {
			c.kept[name] = true
		}

		for _, name := range append(outer, node.Input...) {
			c.readers[name] = append(c.readers[name], node)
		}

		if castTo(node, onnx.TensorProto_FLOAT) && isLow[node.Input[0]] {
			c.source[node.Output[0]] = node.Input[0]
		}

		if _, ok := lowers[node.OpType]; ok && own(node) {
			c.chosen[node] = true
		}

		reads := func(name string) bool { return isLow[name] }
		for _, name := range node.Output {
			c.from[name] = node
			isLow[name] = castTo(node, c.low) || node.OpType != "Cast" && !own(node) && slices.ContainsFunc(node.Input,
				reads)
		}
	}

	for _, v := range graph.Output {
		c.kept[v.Name] = true
		c.readers[v.Name] = append(c.readers[v.Name], &onnx.NodeProto{}) // takes no low precision
	}
}

// fits reports whether a chosen node gets its inputs in low precision, and all that read its output can take that.
func (c *caster) fits(n *onnx.NodeProto) bool {
	at := lowers[n.OpType]
	for _, i := range at.in {
		if i < len(n.Input) && n.Input[i] != "" && c.source[n.Input[i]] == "" && !c.writes(n.Input[i]) {
			return false
		}
	}

	for _, i := range at.out {
		name := n.Output[i]
		if len(c.readers[name]) == 0 || slices.ContainsFunc(c.readers[name],
			func(by *onnx.NodeProto) bool { return !castTo(by, c.low) && !c.reads(by, name) }) {
			return false
		}
	}

	return true
}

// writes reports whether a chosen node has a value as an output of low precision.
func (c *caster) writes(name string) bool {
	n := c.from[name]
	return c.chosen[n] && slices.ContainsFunc(lowers[n.OpType].out, func(i int) bool { return n.Output[i] == name })
}

// reads reports whether a chosen node takes a value only as inputs of low precision.
func (c *caster) reads(n *onnx.NodeProto, name string) bool {
	if !c.chosen[n] {
		return false
	}

	for i, input := range n.Input {
		if input == name && !slices.Contains(lowers[n.OpType].in, i) {
			return false
		}
	}

	return true
}

// lowered returns the form of a chosen node, and notes the Casts that it replaces.
func (c *caster) lowered(node *onnx.NodeProto, rename map[string]string) *onnx.NodeProto {
	at, form := lowers[node.OpType], onnx.ShallowCopy(node)
	form.OpType, form.Input, form.Output = lowKind(node.OpType, c.low), slices.Clone(node.Input),
		slices.Clone(node.Output)
	for _, i := range at.in {
		if i < len(form.Input) && c.source[form.Input[i]] != "" {
			form.Input[i] = c.source[form.Input[i]]
		}
	}

	if node.OpType == "LayerNormGrad" {
		form.Output = append(form.Output, node.Output[0]+"/"+lowKind("", c.low))
	}

	for _, name := range form.Output {
		to := name
		if node.OpType == "LayerNormGrad" {
			to = form.Output[1]
		}
		for _, by := range c.readers[name] {
			if castTo(by, c.low) && !c.kept[by.Output[0]] {
				rename[by.Output[0]] = to
			}
		}
	}

	return form
}
