package nn

import (
	"slices"

	"promptfed/runtime/graph"
)

// Unbind returns the n nodes [m,...] of x [n,m,...], as torch.unbind does.
func Unbind(x graph.Node) []graph.Node {
	shape, _ := x.Shape().Ints()
	n, m := shape[0], shape[1]
	return x.Reshape(append([]int{n * m}, shape[2:]...)...).Split(0, slices.Repeat([]int{m}, n)...)
}

// LogSumExp returns log Σ e^x over one axis, which stays with size 1.
func LogSumExp(x graph.Node, axis int) graph.Node {
	top := x.Graph().Apply(graph.Standard, "ReduceMax", graph.Attrs{"keepdims": graph.Attr(1)}, x, x.Graph().Ints(axis))
	return x.Sub(top).Exp().SumKeep(axis).Log().Add(top)
}
