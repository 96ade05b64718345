package ops_test

import (
	"math"

	"promptfed/runtime/graph"
)

func moveCase(kind, name string, f func(b *bench) node) ruleCase {
	return ruleCase{kind, name, one(func(b *bench) node { return f(b).Square() }), 0}
}

var moveCases = []ruleCase{
	moveCase("Reshape", "", func(b *bench) node { return b.x("x", 2, 6).Reshape(3, -1) }),
	moveCase("Reshape", "symbol", func(b *bench) node { return b.x("x", symB, 6).Reshape(0, 2, 3) }),
	moveCase("Reshape", "like", func(b *bench) node {
		return b.x("x", symB, 6).ReshapeLike(b.constant("y", 2, symB,
			3))
	}),
	moveCase("Reshape", "at run time", func(b *bench) node {
		return b.op("Reshape", nil, b.x("x", 2, 6), b.ints("s", []int64{3, 4}, 2))
	}),
	moveCase("Flatten", "", func(b *bench) node {
		return b.op("Flatten", graph.Attrs{"axis": graph.Attr(2)}, b.x("x", symB, 2,
			3))
	}),
	moveCase("Squeeze", "", func(b *bench) node { return b.x("x", 1, 3, 1).Squeeze(0, -1) }),
	moveCase("Squeeze", "all", func(b *bench) node { return b.op("Squeeze", nil, b.x("x", 1, 3, 1)) }),
	moveCase("Unsqueeze", "", func(b *bench) node { return b.x("x", symB, 3).Unsqueeze(0, -1) }),
	moveCase("Transpose", "", func(b *bench) node { return b.x("x", symB, 3, 4).Transpose(2, 0, 1) }),
	moveCase("Transpose", "default", func(b *bench) node { return b.op("Transpose", nil, b.x("x", 2, 3, 4)) }),
	moveCase("Expand", "", func(b *bench) node { return b.x("x", 3, 1).Expand(2, 3, 4) }),
	moveCase("Expand", "smaller", func(b *bench) node { return b.x("x", 2, 3).Expand(3) }),
	moveCase("Expand", "symbol", func(b *bench) node {
		return b.op("Expand", nil, b.x("x", 1, 3), b.constant("y", symB,
			3).ShapeOf())
	}),
	moveCase("Expand", "at run time", func(b *bench) node {
		return b.op("Expand", nil, b.x("x", 1, 3), b.ints("s", []int64{2, 4, 1}, 3))
	}),
	moveCase("Tile", "", func(b *bench) node { return b.op("Tile", nil, b.x("x", 2, 3), b.Ints(3, 2)) }),
	moveCase("Tile", "symbol", func(b *bench) node { return b.op("Tile", nil, b.x("x", symB, 3), b.Ints(3, 1)) }),
	moveCase("Tile", "at run time", func(b *bench) node {
		return b.op("Tile", nil, b.x("x", 2, 3), b.ints("r", []int64{2, 3}, 2))
	}),
	moveCase("Concat", "", func(b *bench) node {
		return graph.Concat(-1, b.x("a", 2, 3), b.constant("b", 2, 1),
			b.x("c", 2, 2))
	}),
	moveCase("Concat", "symbol", func(b *bench) node {
		return graph.Concat(0, b.x("a", 2, 3), b.x("b", symB, 3),
			b.x("c", 1, 3))
	}),
	{"Split", "uneven", func(b *bench) []node {
		p := b.x("x", 2, 6).Split(1, 1, 3, 2)
		return []node{p[0].Square(), p[2].Square().Scale(2)}
	}, 0},
	{"Split", "equal, axis 0", func(b *bench) []node {
		return b.ApplyN(graph.Standard, "Split", graph.Attrs{"num_outputs": graph.Attr(2)}, 2, b.x("x", 5, 2).Square())
	}, 0},
	{"Split", "symbol", func(b *bench) []node { return b.x("x", symB, 6).Split(-1, 2, 4)[1:] }, 0},
	moveCase("Slice", "", func(b *bench) node { return b.x("x", 3, 5).Slice(1, 1, 4) }),
	moveCase("Slice", "from the end", func(b *bench) node { return b.x("x", 3, 5).Slice(-1, -4, -1) }),
	moveCase("Slice", "beyond the end", func(b *bench) node { return b.x("x", 3, 5).Slice(0, 1, math.MaxInt64) }),
	moveCase("Slice", "symbol head", func(b *bench) node { return b.x("x", symB, 5).Slice(0, 0, 2) }),
	moveCase("Slice", "symbol tail", func(b *bench) node {
		return b.x("x", 2, symB).Slice(1, 1,
			math.MaxInt64).Sum().Add(b.x("y"))
	}),
	moveCase("Slice", "symbol last", func(b *bench) node { return b.x("x", 2, symB, 3).Slice(1, -1, math.MaxInt64) }),
	moveCase("Slice", "symbol all but last", func(b *bench) node {
		return b.x("x", symB, 3).Slice(0, 0,
			-1).Sum().Add(b.x("y"))
	}),
	moveCase("Slice", "steps", func(b *bench) node {
		return b.op("Slice", nil, b.x("x", 3, 7, 5), b.Ints(1, -1, 0), b.Ints(9, math.MinInt64, 4), b.Ints(0, 1, -1),
			b.Ints(1, -2, 3))
	}),
	moveCase("Slice", "no axes", func(b *bench) node {
		return b.op("Slice", nil, b.x("x", 3, 5), b.Ints(1),
			b.Ints(2))
	}),
	moveCase("Slice", "at run time", func(b *bench) node {
		return b.op("Slice", nil, b.x("x", 3, 5), b.ints("start", []int64{1, 0}, 2), b.ints("end", []int64{3, -2}, 2))
	}),
	moveCase("Pad", "", func(b *bench) node {
		return b.op("Pad", nil, b.x("x", symB, 3), b.Ints(1, 0, 0, 2),
			b.Scalar(0.5))
	}),
	moveCase("Pad", "axes and cutting", func(b *bench) node {
		return b.op("Pad", nil, b.x("x", 2, 4), b.Ints(2, -1),
			node{}, b.Ints(-1))
	}),
	moveCase("Pad", "at run time", func(b *bench) node {
		return b.op("Pad", nil, b.x("x", 2, 3), b.ints("p", []int64{1, 0, 2, 1}, 4))
	}),
	moveCase("Gather", "rows", func(b *bench) node {
		return b.x("x", 4, 3).Rows(b.ints("i", []int64{2, 0, 2, -1, 2},
			5))
	}),
	moveCase("Gather", "matrix of indices", func(b *bench) node {
		return b.x("x", 2, 4, 3).Gather(1,
			b.ints("i", []int64{2, 0, 2, 3}, 2, 2))
	}),
	moveCase("Gather", "last axis", func(b *bench) node {
		return b.x("x", symB, 2, 4).Gather(-1,
			b.ints("i", []int64{2, 2, 1}, 3))
	}),
	moveCase("Gather", "symbolic axis", func(b *bench) node {
		return b.x("x", 2, symB, 3).Gather(1,
			b.ints("i", []int64{0, -1}, 2))
	}),
	moveCase("Gather", "one", func(b *bench) node { return b.x("x", symB, 4, 3).Gather(1, b.Scalar64(2)) }),
	moveCase("Gather", "one from the end", func(b *bench) node { return b.x("x", 2, 4, 3).Gather(1, b.Scalar64(-1)) }),
	moveCase("Gather", "one at run time", func(b *bench) node {
		return b.x("x", 2, 4, 3).Gather(2,
			b.ints("i", []int64{1}))
	}),
	moveCase("GatherND", "", func(b *bench) node {
		return b.op("GatherND", nil, b.x("x", 2, 3, 4), b.ints("i", []int64{1, 2, 0, 0, 1, 2}, 3, 2))
	}),
	moveCase("GatherElements", "", func(b *bench) node {
		return b.op("GatherElements", graph.Attrs{"axis": graph.Attr(1)}, b.x("x", 2, 4), b.ints("i", []int64{3, 0, 3, 1, 1, 1}, 2,
			3))
	}),
	moveCase("ScatterND", "replace", func(b *bench) node {
		return b.op("ScatterND", nil, b.x("x", 4, 3), b.ints("i", []int64{2, 0}, 2, 1), b.x("u", 2, 3))
	}),
	moveCase("ScatterND", "add", func(b *bench) node {
		return b.op("ScatterND", graph.Attrs{"reduction": graph.Attr("add")}, b.x("x", 4, 3), b.ints("i", []int64{2, 2}, 2, 1),
			b.x("u", 2, 3))
	}),
	moveCase("ScatterElements", "replace", func(b *bench) node {
		return b.op("ScatterElements", graph.Attrs{"axis": graph.Attr(1)}, b.x("x", 2, 4), b.ints("i", []int64{3, 0, 1, 2}, 2, 2),
			b.x("u", 2, 2))
	}),
	moveCase("ScatterElements", "add", func(b *bench) node {
		return b.op("ScatterElements", graph.Attrs{"reduction": graph.Attr("add")}, b.x("x", 4, 2), b.ints("i", []int64{3, 0, 3, 2},
			2, 2), b.x("u", 2, 2))
	}),
	moveCase("Trilu", "upper", func(b *bench) node { return b.op("Trilu", nil, b.x("x", 2, 4, 4)) }),
	moveCase("Trilu", "lower, offset", func(b *bench) node {
		return b.op("Trilu", graph.Attrs{"upper": graph.Attr(0)},
			b.x("x", 4, 4), b.Scalar64(-1))
	}),
	moveCase("CumSum", "", func(b *bench) node { return b.op("CumSum", nil, b.x("x", 2, 4), b.Scalar64(1)) }),
	moveCase("CumSum", "exclusive reverse", func(b *bench) node {
		return b.op("CumSum", graph.Attrs{"exclusive": graph.Attr(1), "reverse": graph.Attr(1)}, b.x("x", 4, 2), b.Scalar64(0))
	}),
}
