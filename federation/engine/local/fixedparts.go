package local

import (
	"fmt"
	"slices"

	"promptfed/federation/engine/spec"
	"promptfed/runtime/graph"
)

// FixedParts lists the largest parts of a graph that do not depend on the image and are not constants already.
func FixedParts(root graph.Node) []graph.Node {
	moving := map[*graph.Op]bool{}
	var out []graph.Node
	for _, op := range graph.Reachable(root) {
		moves := func(n graph.Node) bool { return n.OK() && moving[n.Op()] }
		moving[op] = op.IsInput() && spec.OfImage(op.Out[0].Name()) || slices.ContainsFunc(op.In, moves) ||
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
	return graph.Transform([]graph.Node{root}, func(op *graph.Op, _ []graph.Node) []graph.Node {
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
	})[0]
}
