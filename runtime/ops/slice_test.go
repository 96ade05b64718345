package ops_test

import (
	"math"

	"promptfed/runtime/graph"
)

func init() {
	shapes(
		shapeCase{"Slice", nil, []any{"5,7", []int{1}, []int{-1}, []int{1}}, "[5,5]"},
		shapeCase{"Slice", nil, []any{"5,7", []int{-1}, []int{-100}, []int{1}, []int{-2}}, "[5,4]"},
		shapeCase{"Slice", nil, []any{"S,7", []int{1}, []int{1 << 40}, []int{0}}, "[(S-1),7]"},
		shapeCase{"Slice", nil, []any{"5", []int{0}, []int{1}, []int{0}, []int{0}},
			"Slice([5], [1], [1], [1], [1]): step 0"},
		shapeCase{"Pad", nil, []any{"2,S", []int{1, 0, 0, 2}}, "[3,(S+2)]"},
	)
	for _, mode := range []string{"reflect", "edge", "wrap"} {
		gradients(gradientCase{"Pad", mode, one(func(b *bench) node {
			return b.op("Pad", attrs{"mode": graph.Attr(mode)}, b.x("x", 2, symB, 4, 5), b.Ints(1, 0, 2, 1, 0, 0, 1, 3))
		}), 0})
	}
	gradients(
		moveCase("Slice", "", func(b *bench) node { return b.x("x", 3, 5).Slice(1, 1, 4) }),
		moveCase("Slice", "from the end", func(b *bench) node { return b.x("x", 3, 5).Slice(-1, -4, -1) }),
		moveCase("Slice", "beyond the end", func(b *bench) node { return b.x("x", 3, 5).Slice(0, 1, math.MaxInt64) }),
		moveCase("Slice", "symbol head", func(b *bench) node { return b.x("x", symB, 5).Slice(0, 0, 2) }),
		moveCase("Slice", "symbol tail", func(b *bench) node {
			return b.x("x", 2, symB).Slice(1, 1, math.MaxInt64).Sum().Add(b.x("y"))
		}),
		moveCase("Slice", "symbol last", func(b *bench) node {
			return b.x("x", 2, symB, 3).Slice(1, -1, math.MaxInt64)
		}),
		moveCase("Slice", "symbol all but last", func(b *bench) node {
			return b.x("x", symB, 3).Slice(0, 0, -1).Sum().Add(b.x("y"))
		}),
		moveCase("Slice", "steps", func(b *bench) node {
			return b.op("Slice", nil, b.x("x", 3, 7, 5), b.Ints(1, -1, 0), b.Ints(9, math.MinInt64, 4),
				b.Ints(0, 1, -1), b.Ints(1, -2, 3))
		}),
		moveCase("Slice", "no axes", func(b *bench) node {
			return b.op("Slice", nil, b.x("x", 3, 5), b.Ints(1), b.Ints(2))
		}),
		moveCase("Slice", "at run time", func(b *bench) node {
			return b.op("Slice", nil, b.x("x", 3, 5), b.ints("start", []int64{1, 0}, 2), b.ints("end", []int64{3, -2},
				2))
		}),
		moveCase("Pad", "", func(b *bench) node {
			return b.op("Pad", nil, b.x("x", symB, 3), b.Ints(1, 0, 0, 2), b.Scalar(0.5))
		}),
		moveCase("Pad", "axes and cutting", func(b *bench) node {
			return b.op("Pad", nil, b.x("x", 2, 4), b.Ints(2, -1), node{}, b.Ints(-1))
		}),
		moveCase("Pad", "at run time", func(b *bench) node {
			return b.op("Pad", nil, b.x("x", 2, 3), b.ints("p", []int64{1, 0, 2, 1}, 4))
		}),
	)
}
