package ops_test

import "promptfed/runtime/graph"

func init() {
	shapes(
		shapeCase{"Gather", attrs{"axis": graph.Attr(1)}, []any{"2,S,4", []int{0, 1, 0}}, "[2,3,4]"},
		shapeCase{"Gather", nil, []any{"2,3", []int{5}}, "Gather([2,3], [1]): index 5 is outside an axis of 2"},
		shapeCase{"GatherElements", nil, []any{"4,3", "2,3"}, "[2,3]"},
		shapeCase{"GatherND", nil, []any{"4,3,5", "6,2"}, "[6,5]"},
		shapeCase{"GatherND", nil, []any{"4,3", "2,0"}, "[2,4,3]"}, // an empty tuple takes everything
		shapeCase{"ScatterND", nil, []any{"4,3", "2,1", "2,3"}, "[4,3]"},
		shapeCase{"OneHot", nil, []any{"S", []int{10}, "2"}, "[S,10]"},
		shapeCase{"NonZero", nil, []any{"2,3"}, "[2,(nonzero1)]"},
	)
	gradients(
		moveCase("Gather", "rows", func(b *bench) node {
			return b.x("x", 4, 3).Rows(b.ints("i", []int64{2, 0, 2, -1, 2}, 5))
		}),
		moveCase("Gather", "known rows, none twice", func(b *bench) node { return b.x("x", 4, 3).Rows(b.Ints(2, -4)) }),
		moveCase("Gather", "known rows, one twice", func(b *bench) node { return b.x("x", 4, 3).Rows(b.Ints(2, -2)) }),
		moveCase("Gather", "matrix of indices", func(b *bench) node {
			return b.x("x", 2, 4, 3).Gather(1, b.ints("i", []int64{2, 0, 2, 3}, 2, 2))
		}),
		moveCase("Gather", "last axis", func(b *bench) node {
			return b.x("x", symB, 2, 4).Gather(-1, b.ints("i", []int64{2, 2, 1}, 3))
		}),
		moveCase("Gather", "symbolic axis", func(b *bench) node {
			return b.x("x", 2, symB, 3).Gather(1, b.ints("i", []int64{0, -1}, 2))
		}),
		moveCase("Gather", "one", func(b *bench) node { return b.x("x", symB, 4, 3).Gather(1, b.Scalar64(2)) }),
		moveCase("Gather", "one from the end", func(b *bench) node {
			return b.x("x", 2, 4, 3).Gather(1, b.Scalar64(-1))
		}),
		moveCase("Gather", "one at run time", func(b *bench) node {
			return b.x("x", 2, 4, 3).Gather(2, b.ints("i", []int64{1}))
		}),
		moveCase("GatherND", "", func(b *bench) node {
			return b.op("GatherND", nil, b.x("x", 2, 3, 4), b.ints("i", []int64{1, 2, 0, 0, 1, 2}, 3, 2))
		}),
		moveCase("GatherElements", "", func(b *bench) node {
			return b.op("GatherElements", attrs{"axis": graph.Attr(1)}, b.x("x", 2, 4), b.ints("i", []int64{3, 0, 3, 1,
				1, 1}, 2,
				3))
		}),
		moveCase("ScatterND", "replace", func(b *bench) node {
			return b.op("ScatterND", nil, b.x("x", 4, 3), b.ints("i", []int64{2, 0}, 2, 1), b.x("u", 2, 3))
		}),
		moveCase("ScatterND", "add", func(b *bench) node {
			return b.op("ScatterND", attrs{"reduction": graph.Attr("add")}, b.x("x", 4, 3), b.ints("i", []int64{2, 2},
				2, 1),
				b.x("u", 2, 3))
		}),
		moveCase("ScatterElements", "replace", func(b *bench) node {
			return b.op("ScatterElements", attrs{"axis": graph.Attr(1)}, b.x("x", 2, 4), b.ints("i", []int64{3, 0, 1,
				2}, 2, 2),
				b.x("u", 2, 2))
		}),
		moveCase("ScatterElements", "add", func(b *bench) node {
			return b.op("ScatterElements", attrs{"reduction": graph.Attr("add")}, b.x("x", 4, 2), b.ints("i",
				[]int64{3, 0, 3, 2},
				2, 2), b.x("u", 2, 2))
		}),
		moveCase("Trilu", "upper", func(b *bench) node { return b.op("Trilu", nil, b.x("x", 2, 4, 4)) }),
		moveCase("Trilu", "lower, offset", func(b *bench) node {
			return b.op("Trilu", attrs{"upper": graph.Attr(0)}, b.x("x", 4, 4), b.Scalar64(-1))
		}),
		gradientCase{"TopK", "", func(b *bench) []node {
			return b.ApplyN(graph.Standard, "TopK", attrs{"axis": graph.Attr(1)}, 2, b.x("x", symB, 6), b.Ints(3))[:1]
		}, small},
		gradientCase{"ReverseSequence", "", one(func(b *bench) node {
			return b.op("ReverseSequence", attrs{"batch_axis": graph.Attr(0), "time_axis": graph.Attr(1)},
				b.x("x", 2, 4, 3), b.Ints(3, 4))
		}), 0},
	)
}
