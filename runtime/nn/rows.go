package nn

import "promptfed/runtime/graph"

// Unbind returns the n nodes [...] of x [n,...], as torch.unbind does.
func Unbind(x graph.Node) []graph.Node {
	shape, _ := x.Shape().Ints()
	out := make([]graph.Node, shape[0])
	for i := range out {
		out[i] = x.Slice(0, i, i+1).Reshape(shape[1:]...)
	}
	return out
}

// LogSumExp returns log Σ e^x over one axis, which stays with size 1.
func LogSumExp(x graph.Node, axis int) graph.Node {
	top := x.Graph().Apply(graph.Standard, "ReduceMax", graph.Attrs{"keepdims": graph.Attr(1)}, x, x.Graph().Ints(axis))
	return x.Sub(top).Exp().SumKeep(axis).Log().Add(top)
}
