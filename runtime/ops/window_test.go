package ops_test

import (
	"fmt"

	"promptfed/runtime/graph"
)

type window struct {
	x, w           []int
	pads, str, dil []int
	group          int
}

func (w window) attrs() graph.Attrs {
	return graph.Attrs{"pads": graph.Attr(w.pads), "strides": graph.Attr(w.str), "dilations": graph.Attr(w.dil), "group": graph.Attr(w.group)}
}

var windowCases = append(append(convCases(), transposedCases()...), poolCases()...)

func convCases() []ruleCase {
	var out []ruleCase
	for _, c := range []window{
		{[]int{2, 3, 5, 6}, []int{4, 3, 3, 2}, []int{0, 0, 0, 0}, []int{1, 1}, []int{1, 1}, 1},
		{[]int{2, 3, 7, 6}, []int{4, 3, 3, 3}, []int{1, 1, 1, 1}, []int{2, 2}, []int{1, 1}, 1},
		{[]int{2, 3, 8, 8}, []int{4, 3, 3, 3}, []int{0, 1, 2, 0}, []int{3, 2}, []int{1, 2}, 1},
		{[]int{1, 3, 8, 8}, []int{2, 3, 4, 4}, []int{0, 0, 0, 0}, []int{4, 4}, []int{1, 1}, 1},
		{[]int{2, 4, 5, 5}, []int{6, 2, 3, 3}, []int{1, 1, 1, 1}, []int{2, 2}, []int{1, 1}, 2},
		{[]int{2, 3, 5, 5}, []int{3, 1, 3, 3}, []int{1, 1, 1, 1}, []int{1, 1}, []int{1, 1}, 3},
		{[]int{2, 3, 9}, []int{4, 3, 3}, []int{1, 2}, []int{2}, []int{1}, 1},
		{[]int{1, 2, 4, 4, 4}, []int{2, 2, 2, 2, 2}, []int{0, 0, 0, 0, 0, 0}, []int{2, 2, 2}, []int{1, 1, 1}, 1},
		{[]int{symB, 2, 6, 6}, []int{2, 1, 3, 3}, []int{1, 1, 1, 1}, []int{2, 2}, []int{1, 1}, 2},
	} {
		out = append(out, ruleCase{"Conv", fmt.Sprint(c), one(func(b *bench) node {
			return b.op("Conv", c.attrs(), b.x("x", c.x...), b.x("w", c.w...), b.x("b", c.w[0]))
		}), 0})
	}
	out = append(out, ruleCase{"Conv", "image of unknown size", one(func(b *bench) node {
		grow := func(n node) node { return graph.Concat(3, n, n, n.Slice(3, 0, 1)) } // width 2 B + 1
		return b.op("Conv", graph.Attrs{"strides": graph.Attr([]int{1, 2})}, grow(b.x("x", 2, 3, 4, symB)), b.x("w", 2, 3, 2, 2))
	}), 0})
	return append(out, ruleCase{"Conv", "defaults", one(func(b *bench) node {
		return b.op("Conv", nil, b.x("x", 2, 3, 4,
			4), b.x("w", 2, 3, 2, 2))
	}), 0})
}

func transposedCases() []ruleCase {
	var out []ruleCase
	for _, c := range []window{
		{[]int{2, 3, 4, 5}, []int{3, 2, 3, 2}, []int{0, 0, 0, 0}, []int{1, 1}, []int{1, 1}, 1},
		{[]int{2, 3, 4, 4}, []int{3, 2, 3, 3}, []int{1, 1, 0, 1}, []int{2, 2}, []int{1, 1}, 1},
		{[]int{2, 4, 3, 3}, []int{4, 3, 3, 3}, []int{1, 1, 1, 1}, []int{2, 2}, []int{1, 1}, 2},
	} {
		out = append(out, ruleCase{"ConvTranspose", fmt.Sprint(c), one(func(b *bench) node {
			at := c.attrs()
			if c.str[0] == 2 {
				at["output_padding"] = graph.Attr([]int{1, 0})
			}
			return b.op("ConvTranspose", at, b.x("x", c.x...), b.x("w", c.w...), b.x("b", c.w[1]*c.group))
		}), 0})
	}
	return out
}

func poolCases() []ruleCase {
	pool := func(kind, name string, at graph.Attrs, sizes ...int) ruleCase {
		return ruleCase{kind, name, one(func(b *bench) node { return b.op(kind, at, b.x("x", sizes...)) }), small}
	}
	two := []int{2, 2}
	return []ruleCase{
		pool("GlobalAveragePool", "", nil, 2, 3, 4, 5), pool("GlobalAveragePool", "symbol", nil, symB, 3, 4, 5),
		pool("GlobalAveragePool", "symbolic size", nil, 2, 3, symB, 5),
		pool("AveragePool", "tiles", graph.Attrs{"kernel_shape": graph.Attr(two), "strides": graph.Attr(two)}, symB, 2, 4, 6),
		pool("AveragePool", "rest", graph.Attrs{"kernel_shape": graph.Attr(two), "strides": graph.Attr(two)}, 2, 2, 5, 5),
		pool("AveragePool", "overlap", graph.Attrs{"kernel_shape": graph.Attr([]int{3, 3}), "strides": graph.Attr(two)}, 2, 2, 7, 6),
		pool("AveragePool", "pads", graph.Attrs{"kernel_shape": graph.Attr([]int{3, 3}), "strides": graph.Attr(two), "pads": graph.Attr([]int{1, 1, 1, 1}),
			"count_include_pad": graph.Attr(1)}, 1, 2, 6, 6),
		pool("MaxPool", "tiles", graph.Attrs{"kernel_shape": graph.Attr(two), "strides": graph.Attr(two)}, symB, 2, 4, 4),
		pool("MaxPool", "overlap and pads", graph.Attrs{"kernel_shape": graph.Attr([]int{3, 3}), "strides": graph.Attr(two), "pads": graph.Attr([]int{1, 1,
			1, 1})}, 2, 2, 6, 6),
		pool("MaxPool", "ceil", graph.Attrs{"kernel_shape": graph.Attr(two), "strides": graph.Attr(two), "ceil_mode": graph.Attr(1)}, 2, 2, 5, 5),
	}
}
