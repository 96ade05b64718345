package ops_test

import "promptfed/runtime/graph"

func init() {
	shapes(
		shapeCase{"SoftmaxCrossEntropyLoss", nil, []any{"S,3", "S"}, "[]"},
		shapeCase{"SoftmaxCrossEntropyLoss", attrs{"reduction": graph.Attr("none")}, []any{"S,3,7", "S,7"}, "[S,7]"},
		shapeCase{"SoftmaxCrossEntropyLoss", nil, []any{"S,3", "S,3"},
			"SoftmaxCrossEntropyLoss([S,3], [S,3]): scores [S,3] for classes [S,3]"},
		shapeCase{"SoftmaxCrossEntropyLoss", attrs{"reduction": graph.Attr("max")}, []any{"S,3", "S"},
			`SoftmaxCrossEntropyLoss([S,3], [S]): reduction is "max"`},
	)
	for _, reduction := range []string{"mean", "sum", "none"} {
		gradients(gradientCase{"SoftmaxCrossEntropyLoss", reduction, one(func(b *bench) node {
			return b.op("SoftmaxCrossEntropyLoss", attrs{"reduction": graph.Attr(reduction)}, b.x("x", 4, 3),
				b.ints("label", []int64{2, 0, 1, 2}, 4))
		}), 0})
		gradients(gradientCase{"SoftmaxCrossEntropyLoss", reduction + " with weights", one(func(b *bench) node {
			return b.op("SoftmaxCrossEntropyLoss", attrs{"reduction": graph.Attr(reduction)}, b.x("x", 4, 3),
				b.ints("label", []int64{2, 0, 1, 2}, 4), b.x("weight", 3).Square().AddScalar(0.5))
		}), 0})
	}
}
