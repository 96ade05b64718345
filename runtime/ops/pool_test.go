package ops_test

import (
	"maps"

	"promptfed/runtime/graph"
)

func init() {
	shapes(
		shapeCase{"MaxPool", attrs{"kernel_shape": graph.Attr([]int{2, 2}), "strides": graph.Attr([]int{2, 2}),
			"ceil_mode": graph.Attr(1)}, []any{"1,2,5,4"}, "[1,2,3,2]"},
		shapeCase{"AveragePool", attrs{"kernel_shape": graph.Attr([]int{2, 2}), "strides": graph.Attr([]int{2, 2})},
			[]any{"S,2,5,4"}, "[S,2,2,2]"},
		shapeCase{"GlobalAveragePool", nil, []any{"S,2,5,4"}, "[S,2,1,1]"},
	)
	pool := func(kind, name string, at attrs, sizes ...int) gradientCase {
		return gradientCase{kind, name, one(func(b *bench) node { return b.op(kind, at, b.x("x", sizes...)) }), small}
	}
	windows := func(k int, more attrs) attrs {
		at := attrs{"kernel_shape": graph.Attr([]int{k, k}), "strides": graph.Attr([]int{2, 2})}
		maps.Copy(at, more)
		return at
	}
	yes := graph.Attr(1)
	ceil, upper := attrs{"ceil_mode": yes}, attrs{"auto_pad": graph.Attr("SAME_UPPER")}
	pads := attrs{"pads": graph.Attr([]int{1, 1, 1, 1})}
	counted := attrs{"pads": pads["pads"], "count_include_pad": yes}
	both, all := attrs{"pads": pads["pads"], "ceil_mode": yes}, attrs{"pads": pads["pads"], "ceil_mode": yes,
		"count_include_pad": yes}
	gradients(
		pool("GlobalAveragePool", "", nil, 2, 3, 4, 5), pool("GlobalAveragePool", "symbol", nil, symB, 3, 4, 5),
		pool("GlobalAveragePool", "symbolic size", nil, 2, 3, symB, 5),
		pool("GlobalMaxPool", "", nil, symB, 3, 4, 5),
		pool("AveragePool", "tiles", windows(2, nil), symB, 2, 4, 6),
		pool("AveragePool", "rest", windows(2, nil), 2, 2, 5, 5),
		pool("AveragePool", "overlap", windows(3, nil), 2, 2, 7, 6),
		pool("AveragePool", "pads", windows(3, counted), 1, 2, 6, 6),
		pool("AveragePool", "pads that do not count", windows(3, pads), symB, 2, 7, 6),
		pool("AveragePool", "ceil", windows(2, ceil), 2, 2, 5, 6),
		pool("AveragePool", "ceil and pads that count", windows(3, all), 2, 2, 6, 8),
		pool("AveragePool", "ceil and pads that do not count", windows(3, both), 2, 2, 6, 8),
		pool("AveragePool", "SAME_UPPER", windows(3, upper), 2, 2, 6, 5),
		pool("MaxPool", "tiles", windows(2, nil), symB, 2, 4, 4),
		pool("MaxPool", "overlap and pads", windows(3, pads), 2, 2, 6, 6),
		pool("MaxPool", "ceil", windows(2, ceil), 2, 2, 5, 5),
		pool("MaxPool", "SAME_UPPER", windows(3, upper), 2, 2, 6, 5),
		gradientCase{"LpPool", "", one(func(b *bench) node {
			return b.op("LpPool", attrs{"kernel_shape": graph.Attr([]int{2, 3}), "strides": graph.Attr([]int{2, 1}),
				"pads": graph.Attr([]int{0, 1, 1, 1}), "p": graph.Attr(3)}, b.positive("x", 2, 2, 5, 4))
		}), 0},
	)
}
