package local

import (
	"fmt"
	"slices"

	"promptfed/federation/engine/spec"
	"promptfed/runtime/graph"
)

// FixedParts lists the largest parts of a graph that do not depend on the image and are not constants already.
func FixedParts(root graph.Node) []graph.Node {
	return partsWithout([]graph.Node{root}, spec.OfImage)
}

// partsWithout lists the largest parts of graphs that depend on none of some inputs and are not constants already.
func partsWithout(roots []graph.Node, inputs func(name string) bool) (out []graph.Node) {
	moving := map[*graph.Op]bool{}
	for _, op := range graph.Reachable(roots...) {
		moves := func(n graph.Node) bool { return n.OK() && moving[n.Op()] }
		moving[op] = op.IsInput() && inputs(op.Out[0].Name()) || slices.ContainsFunc(op.In, moves) ||
			slices.ContainsFunc(op.Uses, moves)
		if !moving[op] {
			continue
		}
		for _, n := range op.In {
			if n.OK() && !moving[n.Op()] && n.Op().Literal() == nil && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

func ValueName(i int) string { return fmt.Sprint(valueOutput, i) }

// Replace puts others in the place of nodes.
func Replace(root graph.Node, nodes []graph.Node, with func(i int) graph.Node) graph.Node {
	return replaceAll([]graph.Node{root}, nodes, with)[0]
}

func replaceAll(roots, nodes []graph.Node, with func(i int) graph.Node) []graph.Node {
	return graph.Transform(roots, func(op *graph.Op, _ []graph.Node) []graph.Node {
		out := slices.Clone(op.Out)
		found := false
		for k, n := range op.Out {
			if i := slices.Index(nodes, n); i >= 0 {
				out[k], found = with(i), true
			}
		}
		if !found {
			return nil
		}
		return out
	})
}
