package ops_test

import (
	"fmt"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
)

func init() {
	shapes(
		shapeCase{"Conv", attrs{"strides": graph.Attr([]int{2, 2}), "pads": graph.Attr([]int{1, 1, 1, 1})},
			[]any{"2,3,7,8", "4,3,3,3"}, "[2,4,4,4]"},
		shapeCase{"Conv", nil, []any{"2,3,7,8", "4,2,3,3"},
			"Conv([2,3,7,8], [4,2,3,3]): weights [4,2,3,3] in 1 groups do not fit"},
		shapeCase{"Conv", nil, []any{"2,3,7,8", nil}, "[?]"},
		shapeCase{"Conv", nil, []any{"1,3,2,2", "4,3,3,3"},
			"Conv([1,3,2,2], [4,3,3,3]): kernel [3 3] is larger than [1,3,2,2]"},
		shapeCase{"ConvTranspose", attrs{"strides": graph.Attr([]int{2, 2}), "output_padding": graph.Attr([]int{1,
			0})}, []any{"2,3,4,4", "3,2,3,3"},
			"[2,2,10,9]"},
	)
	gradients(convCases()...)
	gradients(transposedCases()...)
	gradients(gradientCase{"Conv", "SAME_LOWER", one(func(b *bench) node {
		return b.op("Conv", attrs{"strides": graph.Attr([]int{2, 2}), "auto_pad": graph.Attr("SAME_LOWER")},
			b.x("x", 2, 3, 6, 5), b.x("w", 2, 3, 3, 2))
	}), 0})
}

type window struct {
	x, w           []int
	pads, str, dil []int
	group          int
}

func (w window) attrs() graph.Attrs {
	return attrs{"pads": graph.Attr(w.pads), "strides": graph.Attr(w.str), "dilations": graph.Attr(w.dil),
		"group": graph.Attr(w.group)}
}

func convCases() []gradientCase {
	var out []gradientCase
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
		out = append(out, gradientCase{"Conv", fmt.Sprint(c), one(func(b *bench) node {
			return b.op("Conv", c.attrs(), b.x("x", c.x...), b.x("w", c.w...), b.x("b", c.w[0]))
		}), 0})
	}
	out = append(out, gradientCase{"Conv", "image of unknown size", one(func(b *bench) node {
		grow := func(n node) node { return graph.Concat(3, n, n, n.Slice(3, 0, 1)) } // width 2 B + 1
		return b.op("Conv", attrs{"strides": graph.Attr([]int{1, 2})}, grow(b.x("x", 2, 3, 4, symB)), b.x("w", 2, 3, 2,
			2))
	}), 0})
	return append(out, gradientCase{"Conv", "defaults", one(func(b *bench) node {
		return b.op("Conv", nil, b.x("x", 2, 3, 4, 4), b.x("w", 2, 3, 2, 2))
	}), 0})
}

func transposedCases() []gradientCase {
	return convert.Slice([]window{
		{[]int{2, 3, 4, 5}, []int{3, 2, 3, 2}, []int{0, 0, 0, 0}, []int{1, 1}, []int{1, 1}, 1},
		{[]int{2, 3, 4, 4}, []int{3, 2, 3, 3}, []int{1, 1, 0, 1}, []int{2, 2}, []int{1, 1}, 1},
		{[]int{2, 4, 3, 3}, []int{4, 3, 3, 3}, []int{1, 1, 1, 1}, []int{2, 2}, []int{1, 1}, 2},
	}, func(c window) gradientCase {
		return gradientCase{"ConvTranspose", fmt.Sprint(c), one(func(b *bench) node {
			at := c.attrs()
			if c.str[0] == 2 {
				at["output_padding"] = graph.Attr([]int{1, 0})
			}
			return b.op("ConvTranspose", at, b.x("x", c.x...), b.x("w", c.w...), b.x("b", c.w[1]*c.group))
		}), 0}
	})
}
