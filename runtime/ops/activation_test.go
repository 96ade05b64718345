package ops_test

import (
	"fmt"

	"promptfed/runtime/graph"
)

func init() {
	shapes(
		shapeCase{"Softmax", nil, []any{"S,3"}, "[S,3]"},
	)
	for _, kind := range []string{"Softmax", "LogSoftmax"} {
		for _, axis := range []int{-1, 0, 1, -3} {
			gradients(gradientCase{kind, fmt.Sprint(axis), one(func(b *bench) node {
				return b.op(kind, attrs{"axis": graph.Attr(axis)}, b.x("x", symB, 3, 4)).Square()
			}), 0})
		}
		gradients(gradientCase{kind, "default axis", one(func(b *bench) node {
			return b.op(kind, nil, b.x("x", 3, 4)).Square()
		}), 0})
	}
	wide := []int{2, 3, 8}
	gradients(
		unaryCase("Sigmoid", nil),
		unaryCase("Softplus", nil),
		unaryCase("Relu", nil),
		unaryCase("LeakyRelu", attrs{"alpha": graph.Attr(0.3)}),
		unaryCase("LeakyRelu", nil),
		unaryCase("Elu", attrs{"alpha": graph.Attr(0.7)}),
		unaryCase("HardSwish", nil),
		unaryCase("HardSigmoid", nil),
		unaryCase("HardSigmoid", attrs{"alpha": graph.Attr(0.9), "beta": graph.Attr(0.4)}),
		gradientCase{"HardSwish", "far", one(func(b *bench) node {
			return b.op("HardSwish", nil, b.x("x", 9).MulScalar(2.3))
		}), small},
		gradientCase{"PRelu", "", one(func(b *bench) node {
			return b.op("PRelu", nil, b.x("x", 2, 3, 4), b.x("slope", 3, 1))
		}), small},
		gradientCase{graph.Microsoft + ".QuickGelu", "", one(func(b *bench) node {
			return b.Apply(graph.Microsoft, "QuickGelu", attrs{"alpha": graph.Attr(1.702)}, b.x("x", 2, 5))
		}), 0},
		gradientCase{graph.Microsoft + ".Gelu", "", one(func(b *bench) node {
			return b.Apply(graph.Microsoft, "Gelu", nil, b.x("x", 2, 5))
		}), 0},
		gradientCase{"Celu", "at 0", one(func(b *bench) node { // smooth, with the gradient 1
			return b.op("Celu", attrs{"alpha": graph.Attr(0.7)}, b.zero("x", 3))
		}), small},
		batchCase("Selu", nil), batchCase("Celu", attrs{"alpha": graph.Attr(0.7)}), batchCase("Softsign", nil),
		batchCase("Gelu", nil), batchCase("Gelu", attrs{"approximate": graph.Attr("tanh")}),
		batchCase("ThresholdedRelu", attrs{"alpha": graph.Attr(0.33)}),
		ofInputs(graph.Standard, "Swish", "", nil, []int{3, 5}),
		ofInputs(graph.Standard, "Swish", "", attrs{"alpha": graph.Attr(1.7)}, []int{3, 5}),
		ofInputs(graph.Microsoft, "FastGelu", "", nil, wide), ofInputs(graph.Microsoft, "FastGelu", "bias", nil, wide,
			[]int{8}),
		ofInputs(graph.Microsoft, "BiasGelu", "", nil, wide, []int{8}),
	)
}

// batchCase tests an activation over a symbolic batch.
func batchCase(kind string, at attrs) gradientCase {
	return gradientCase{kind, "", one(func(b *bench) node { return b.op(kind, at, b.x("x", symB, 5)) }), small}
}
