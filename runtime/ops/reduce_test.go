package ops_test

import (
	"fmt"

	"promptfed/runtime/graph"
)

var reduceCases = append(reductionCases(), normCases()...)

func reductionCases() []ruleCase {
	var out []ruleCase
	for _, kind := range []string{"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
		"ReduceSumSquare", "ReduceLogSumExp"} {
		for _, axes := range [][]int{nil, {1}, {-1, 0}, {2, 1}, {0, 1, 2}} {
			for keep := range 2 {
				out = append(out, ruleCase{kind, fmt.Sprint(axes, keep), one(func(b *bench) node {
					in := []node{b.x("x", 2, 3, 4)}
					if axes != nil {
						in = append(in, b.Ints(axes...))
					}
					return b.op(kind, graph.Attrs{"keepdims": graph.Attr(keep)}, in...).Square()
				}), small})
			}
		}
		out = append(out,
			ruleCase{kind, "symbol", one(func(b *bench) node {
				return b.op(kind, graph.Attrs{"keepdims": graph.Attr(0)}, b.x("x", symB, 4), b.Ints(0)).Square()
			}), small},
			ruleCase{kind, "symbol all", one(func(b *bench) node {
				return b.op(kind, nil, b.x("x", symB,
					4)).Square()
			}), small},
			ruleCase{kind, "axes at run time", one(func(b *bench) node {
				return b.op(kind, nil, b.x("x", 3, 4), b.ints("axes", []int64{-2}, 1)).Square()
			}), small},
			ruleCase{kind, "no axes no operation", one(func(b *bench) node {
				return b.op(kind, graph.Attrs{"keepdims": graph.Attr(0), "noop_with_empty_axes": graph.Attr(1)}, b.positive("x", 3, 4),
					b.Ints()).Square()
			}), small})
	}
	return out
}

func normCases() []ruleCase {
	var out []ruleCase
	for _, kind := range []string{"Softmax", "LogSoftmax"} {
		for _, axis := range []int{-1, 0, 1, -3} {
			out = append(out, ruleCase{kind, fmt.Sprint(axis), one(func(b *bench) node {
				return b.op(kind, graph.Attrs{"axis": graph.Attr(axis)}, b.x("x", symB, 3, 4)).Square()
			}), 0})
		}
		out = append(out, ruleCase{kind, "default axis", one(func(b *bench) node {
			return b.op(kind, nil,
				b.x("x", 3, 4)).Square()
		}), 0})
	}
	layer := func(name string, at graph.Attrs, x, scale []int, bias bool) ruleCase {
		return ruleCase{"LayerNormalization", name, one(func(b *bench) node {
			in := []node{b.x("x", x...), b.x("scale", scale...)}
			if bias {
				in = append(in, b.x("bias", scale...))
			}
			return b.op("LayerNormalization", at, in...)
		}), 0}
	}
	batch := func(name string, sizes ...int) ruleCase {
		return ruleCase{"BatchNormalization", name, one(func(b *bench) node {
			x := b.x("x", sizes...)
			scale, bias := b.x("scale", 3), b.x("bias", 3)
			mean, deviation := b.constant("mean", 3), b.constant("deviation", 3)
			return b.op("BatchNormalization", graph.Attrs{"epsilon": graph.Attr(float32(0.1))}, x, scale, bias, mean.Shift(0.3),
				deviation.Square())
		}), 0}
	}
	return append(out,
		layer("", nil, []int{2, 3, 5}, []int{5}, true), layer("no bias", graph.Attrs{"epsilon": graph.Attr(float32(0.3))},
			[]int{symB, 5}, []int{5}, false),
		layer("two axes", graph.Attrs{"axis": graph.Attr(-2)}, []int{2, 3, 5}, []int{3, 5}, true), layer("all axes",
			graph.Attrs{"axis": graph.Attr(0)}, []int{3, 5}, []int{3, 5}, true),
		layer("narrow scale", graph.Attrs{"axis": graph.Attr(1)}, []int{2, 3, 5}, []int{5}, true),
		batch("", 2, 3, 4, 4), batch("rank 2", symB, 3), batch("rank 3", 2, 3, 4))
}
