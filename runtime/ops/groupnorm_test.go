package ops_test

import "promptfed/runtime/graph"

func init() {
	two := attrs{"num_groups": graph.Attr(2)}
	x := []int{2, 6, 3, 2}
	shapes(
		shapeCase{"GroupNormalization", two, []any{"S,6,3,2", "6", "6"}, "[S,6,3,2]"},
		shapeCase{"GroupNormalization", two, []any{"S,5,3", "5", "5"},
			"GroupNormalization([S,5,3], [5], [5]): 5 channels in 2 groups"},
		shapeCase{"GroupNormalization", two, []any{"S,6,3", "3", "6"}, "GroupNormalization([S,6,3], [3], [6]): scale " +
			"or " +
			"bias [3] is neither per channel (6) nor per group (2)"},
		shapeCase{"GroupNormalization", nil, []any{"S,6,3", "6", "6"},
			"GroupNormalization([S,6,3], [6], [6]): num_groups is 0"},
	)
	gradients(
		ofInputs(graph.Standard, "GroupNormalization", "per channel", two, x, []int{6}, []int{6}),
		ofInputs(graph.Standard, "GroupNormalization", "per group", two, x, []int{2}, []int{2}),
		ofInputs(graph.Standard, "GroupNormalization", "rank 2", two, []int{symB, 6}, []int{6}, []int{6}),
	)
	witnesses(witness{"groupnorm.json", "GroupNormalization",
		attrs{"num_groups": graph.Attr(2), "epsilon": graph.Attr(1e-3)}, []string{"x", "scale", "bias"}})
}
