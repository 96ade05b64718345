package ops_test

import (
	"fmt"
	"strings"

	"promptfed/runtime/graph"
)

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
		at := attrs{"reduction": graph.Attr(reduction)}
		gradients(crossEntropy(reduction, at, 0), crossEntropy(reduction+" with weights", at, 0))
		for _, ignored := range []int{-1, 0} {
			at := attrs{"reduction": graph.Attr(reduction), "ignore_index": graph.Attr(ignored)}
			name := fmt.Sprint(reduction, " without ", ignored)
			gradients(crossEntropy(name, at, ignored), crossEntropy(name+" with weights", at, ignored))
		}
	}
}

// crossEntropy is a case whose second example has the given class number.
func crossEntropy(name string, at attrs, second int) gradientCase {
	return gradientCase{"SoftmaxCrossEntropyLoss", name, one(func(b *bench) node {
		in := []node{b.x("x", 4, 3), b.ints("label", []int64{2, int64(second), 1, 2}, 4)}
		if strings.HasSuffix(name, "weights") {
			in = append(in, b.x("weight", 3).Square().AddScalar(0.5))
		}
		return b.op("SoftmaxCrossEntropyLoss", at, in...)
	}), 0}
}
