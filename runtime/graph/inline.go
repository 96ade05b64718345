package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
)

// Inline rebuilds roots, which are values of another graph, in g. replace maps values of the other graph to nodes of g;
// the operators behind these values are not rebuilt. Shapes are inferred again, branches with a constant condition are
// resolved, and half precision becomes float32, in which ONNX Runtime computes on a CPU and which gradients need.
//
// An input without a replacement is an error. Loops, and branches whose condition is not constant, keep their
// subgraphs, and have no gradient.
func Inline(g *Graph, roots []Node, replace map[Node]Node) ([]Node, error) {
	return InlineWith(g, roots, replace, nil)
}

// OpTransform returns the outputs of an operator that is inlined. in are the new inputs; apply returns the outputs of
// the unchanged operator.
type OpTransform func(op *Op, in []Node, apply func(in []Node) ([]Node, error)) ([]Node, error)

// InlineWith is Inline that calls transform, if not nil, for the outputs of each operator.
func InlineWith(g *Graph, roots []Node, replace map[Node]Node, transform OpTransform) ([]Node, error) {
	inliner := &inliner{graph: g, now: map[Node]Node{}, transform: transform}
	maps.Copy(inliner.now, replace)
	for _, op := range ReachableUpTo(replace, roots...) {
		if err := inliner.op(op); err != nil {
			return nil, fmt.Errorf("%s: %w", op.Label(), err)
		}
		if g.err != nil {
			return nil, g.err
		}
		if err := g.room(0); err != nil {
			return nil, err
		}
	}

	out := make([]Node, len(roots))
	for i, r := range roots {
		out[i] = inliner.now[r]
		g.need([]*onnx.OperatorSetIdProto{{Version: r.Graph().opset}})
	}

	return out, nil
}

type inliner struct {
	graph     *Graph
	now       map[Node]Node
	transform OpTransform
}

func (c *inliner) op(op *Op) error {
	if op.data != nil {
		c.now[op.Out[0]] = c.single(c.literal(op))
		return nil
	}

	if op.IsInput() {
		return fmt.Errorf("the input %q has no replacement", op.Out[0].value.name)
	}

	in := convert.Slice(op.In, func(n Node) Node { return c.now[n] })
	if len(onnx.Subgraphs(op.proto)) > 0 {
		return c.branch(op, in)
	}

	if op.Domain == Standard && op.Kind == "Cast" && IsHalf(DType(op.Attrs.Int("to", 0))) {
		c.set(op, 0, in[0].Cast(Float))
		return nil
	}

	count := len(op.Out)
	for count > 1 && op.Out[count-1].value.name == "" { // the file omits it
		count--
	}

	apply := func(in []Node) ([]Node, error) {
		out := c.graph.again(op, count, in)
		if out[0].failed() {
			return nil, c.graph.err
		}
		return out, nil
	}

	transform := c.transform
	if transform == nil {
		transform = func(_ *Op, in []Node, apply func([]Node) ([]Node, error)) ([]Node, error) { return apply(in) }
	}

	out, err := transform(op, in, apply)
	if err != nil {
		return err
	}

	for i, n := range out {
		n.value.op.Name = cmp.Or(n.value.op.Name, op.Name)
		if n.value.dtype == 0 {
			n.value.dtype = op.Out[i].value.dtype
		}
		c.set(op, i, c.single(n))
	}

	return nil
}

func (c *inliner) set(op *Op, i int, n Node) {
	if _, given := c.now[op.Out[i]]; !given {
		c.now[op.Out[i]] = n
	}
}

// single returns n, converted to float32 if it is half precision.
func (c *inliner) single(n Node) Node {
	if IsHalf(n.value.dtype) {
		return n.Cast(Float)
	}
	return n
}

// IsHalf reports whether a type has 16 bits.
func IsHalf(t DType) bool { return t == Half || t == onnx.TensorProto_BFLOAT16 }

func (c *inliner) literal(op *Op) Node {
	l, old := op.data, op.Out[0].value
	if l.Proto == nil {
		return c.graph.constant(l, old.dtype, old.shape, fmt.Sprintf("literal:%p", l))
	}

	n := c.graph.tensorProto(l.Proto, fmt.Sprintf("proto:%p", l.Proto))
	n.value.name = cmp.Or(n.value.name, old.name)
	return n
}

// control keeps an operator with subgraphs, which expect the types of the file.
func (c *inliner) control(op *Op) error {
	typed := func(old []Node) []Node {
		out := make([]Node, len(old))
		for i, n := range old {
			if out[i] = c.now[n]; n.OK() && IsHalf(n.value.dtype) {
				out[i] = out[i].Cast(n.value.dtype)
			}
		}
		return out
	}

	for i, n := range c.graph.control(op, typed(op.In), typed(op.Uses)) {
		if n.failed() {
			return c.graph.err
		}
		c.set(op, i, c.single(n))
	}

	return nil
}

// control adds an operator with subgraphs again, for other inputs and for other values that its subgraphs read. Its
// outputs keep their types, ranks and static sizes.
func (g *Graph) control(op *Op, in, uses []Node) []Node {
	names := map[string]string{}
	for i, name := range onnx.OuterNames(op.proto) {
		if uses[i].failed() {
			return slices.Repeat(uses[i:i+1], len(op.Out))
		}
		n := uses[i].Identity() // its name belongs to no other value
		n.value.name = fmt.Sprintf("outer%d", n.value.op.ID)
		uses[i], names[name] = n, n.value.name
	}

	p := onnx.RenameOuter(op.proto, names)
	out := slices.Clone(g.apply(op.def, op.Domain, op.Kind, readAttrs(p.Attribute), len(op.Out), in))
	if out[0].failed() {
		return out
	}

	made := out[0].value.op
	made.Uses, made.proto, made.Name = uses, p, op.Name
	for i, n := range op.Out {
		v := out[i].value
		v.dtype, v.shape = n.value.dtype, slices.Clone(n.value.shape)
		for k, d := range v.shape {
			if !d.Static() {
				v.shape[k] = opaque("%s%d.%d.%d", op.Kind, made.ID, i, k)
			}
		}
	}

	return out
}

// branch resolves an If whose condition is constant now, and keeps any other operator with subgraphs.
func (c *inliner) branch(op *Op, in []Node) error {
	scope := &scope{names: map[string]Node{}, label: op.Name + "/"}
	for i, name := range onnx.OuterNames(op.proto) {
		scope.names[name] = c.now[op.Uses[i]]
	}

	node := &onnx.NodeProto{OpType: op.Kind, Attribute: op.proto.Attribute}
	for i := range op.Out {
		node.Output = append(node.Output, fmt.Sprintf("\x00%d", i))
	}

	f := &File{Graph: c.graph}
	done, err := f.branch(node, in, scope)
	if err != nil || !done {
		return cmp.Or(err, c.control(op))
	}

	for i := range op.Out {
		n := scope.names[node.Output[i]]
		if n.value.name == node.Output[i] {
			n.value.name = ""
		}
		c.set(op, i, c.single(n))
	}

	return nil
}
