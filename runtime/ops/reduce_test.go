package ops_test

import (
	"fmt"

	"promptfed/runtime/graph"
)

func init() {
	shapes(
		shapeCase{"ReduceSum", attrs{"keepdims": graph.Attr(0)}, []any{"2,S,4", []int{-1, 0}}, "[S]"},
		shapeCase{"ReduceMean", nil, []any{"2,S,4"}, "[1,1,1]"},
		shapeCase{"ReduceMax", attrs{"noop_with_empty_axes": graph.Attr(1)}, []any{"2,S", []int{}}, "[2,S]"},
		shapeCase{"ReduceMax", nil, []any{"2,3", []int{}}, "[1,1]"},
		shapeCase{"ReduceSum", nil, []any{"2,3", []int{2}}, "ReduceSum([2,3], [1]): axis 2 is outside rank 2"},
		shapeCase{"ReduceSumSquare", attrs{"noop_with_empty_axes": graph.Attr(1)}, []any{"2,S"},
			"ReduceSumSquare([2,S]): ONNX Runtime's CUDA provider does not square without axes: use Mul"},
		shapeCase{"ArgMax", attrs{"axis": graph.Attr(1), "keepdims": graph.Attr(0)}, []any{"S,3"}, "[S]"},
	)
	gradients(reductionCases()...)
	gradients(
		gradientCase{"ReduceProd", "", one(func(b *bench) node {
			return b.op("ReduceProd", attrs{"keepdims": graph.Attr(0)}, b.x("x", symB, 4, 3), b.Ints(1))
		}), small},
		gradientCase{"ReduceProd", "all, with a zero", one(func(b *bench) node {
			x := b.x("x", 2, 3)
			b.feeds["x"].Data[1] = 0
			return b.op("ReduceProd", nil, x)
		}), small},
		gradientCase{"ReduceProd", "two zeros in a row", one(func(b *bench) node {
			x := b.x("x", 2, 3)
			b.feeds["x"].Data[1], b.feeds["x"].Data[2] = 0, 0
			return b.op("ReduceProd", nil, x, b.Ints(1))
		}), small},
		gradientCase{"ReduceLogSum", "", one(func(b *bench) node {
			return b.op("ReduceLogSum", nil, b.positive("x", symB, 4), b.Ints(1))
		}), 0},
		moveCase("CumSum", "", func(b *bench) node { return b.op("CumSum", nil, b.x("x", 2, 4), b.Scalar64(1)) }),
		moveCase("CumSum", "exclusive reverse", func(b *bench) node {
			return b.op("CumSum", attrs{"exclusive": graph.Attr(1), "reverse": graph.Attr(1)}, b.x("x", 4, 2),
				b.Scalar64(0))
		}),
	)
}

func reductionCases() []gradientCase {
	var out []gradientCase
	for _, kind := range []string{"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
		"ReduceSumSquare", "ReduceLogSumExp"} {
		for _, axes := range [][]int{nil, {1}, {-1, 0}, {2, 1}, {0, 1, 2}} {
			for keep := range 2 {
				out = append(out, gradientCase{kind, fmt.Sprint(axes, keep), one(func(b *bench) node {
					in := []node{b.x("x", 2, 3, 4)}
					if axes != nil {
						in = append(in, b.Ints(axes...))
					}
					return b.op(kind, attrs{"keepdims": graph.Attr(keep)}, in...).Square()
				}), small})
			}
		}
		out = append(out,
			gradientCase{kind, "symbol", one(func(b *bench) node {
				return b.op(kind, attrs{"keepdims": graph.Attr(0)}, b.x("x", symB, 4), b.Ints(0)).Square()
			}), small},
			gradientCase{kind, "symbol all", one(func(b *bench) node {
				return b.op(kind, nil, b.x("x", symB, 4)).Square()
			}), small},
			gradientCase{kind, "axes at run time", one(func(b *bench) node {
				return b.op(kind, nil, b.x("x", 3, 4), b.ints("axes", []int64{-2}, 1)).Square()
			}), small})
		if kind == "ReduceSumSquare" { // refused
			continue
		}
		out = append(out,
			gradientCase{kind, "no axes no operation", one(func(b *bench) node {
				return b.op(kind, attrs{"keepdims": graph.Attr(0), "noop_with_empty_axes": graph.Attr(1)},
					b.positive("x", 3, 4),
					b.Ints()).Square()
			}), small})
	}
	return out
}
