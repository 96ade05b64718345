package graph

import (
	"slices"

	"promptfed/runtime/convert"
	"promptfed/runtime/onnx"
)

// Reachable lists the operators that roots depend on, in the order of their creation.
func Reachable(roots ...Node) []*Op { return ReachableUpTo[bool](nil, roots...) }

// ReachableUpTo is Reachable without the operators on which only the keys of given depend.
func ReachableUpTo[V any](given map[Node]V, roots ...Node) []*Op {
	seen := map[*Op]bool{}
	var out, visit []*Op
	push := func(list []Node) {
		for _, n := range list {
			if _, stop := given[n]; n.OK() && !stop && !seen[n.value.op] {
				seen[n.value.op] = true
				visit = append(visit, n.value.op)
			}
		}
	}

	push(roots)
	for len(visit) > 0 {
		op := visit[len(visit)-1]
		visit = visit[:len(visit)-1]
		out = append(out, op)
		push(op.In)
		push(op.Uses)
	}

	slices.SortFunc(out, func(a, b *Op) int { return a.ID - b.ID })
	return out
}

// Transform rebuilds roots with some operators replaced. It calls replace for every operator that the roots depend on,
// inputs first, with the rebuilt inputs; replace returns the new outputs, or nil to keep the operator.
func Transform(roots []Node, replace func(op *Op, in []Node) []Node) []Node {
	now := map[*Op][]Node{}
	get := func(n Node) Node {
		if !n.OK() {
			return n
		}
		if out, ok := now[n.value.op]; ok {
			return out[n.value.index]
		}
		return n
	}

	for _, op := range Reachable(roots...) {
		in, uses := convert.Slice(op.In, get), convert.Slice(op.Uses, get)
		out := replace(op, in)
		switch {
		case out != nil || slices.Equal(in, op.In) && slices.Equal(uses, op.Uses):
		case len(onnx.Subgraphs(op.proto)) > 0:
			out = op.graph.control(op, in, uses)
		default:
			out = op.graph.again(op, len(op.Out), in)
		}

		if out != nil {
			now[op] = out
		}
	}

	return convert.Slice(roots, get)
}

// Inputs lists the inputs that roots depend on, in the order of their declaration.
func Inputs(roots ...Node) []Node {
	var out []Node
	for _, op := range Reachable(roots...) {
		if op.IsInput() {
			out = append(out, op.Out[0])
		}
	}
	return out
}

// ReadersOf returns the operators that roots need and that depend on some inputs: those for which the function returns
// true. The operators of these inputs are among them.
func ReadersOf(which func(input Node) bool, roots ...Node) map[*Op]bool {
	needed := map[*Op]bool{}
	for _, op := range Reachable(roots...) {
		reads := func(n Node) bool { return n.OK() && needed[n.value.op] }
		if op.IsInput() && which(op.Out[0]) || slices.ContainsFunc(slices.Concat(op.In, op.Uses), reads) {
			needed[op] = true
		}
	}

	return needed
}
