package ops_test

import (
	"promptfed/runtime/graph"
)

func unaryCase(kind string, attrs graph.Attrs) ruleCase {
	return ruleCase{kind, "", one(func(b *bench) node { return b.op(kind, attrs, b.x("x", 2, 5)) }), small}
}

// flatCase multiplies a function without slope by its argument, so that there is a slope.
func flatCase(kind string) ruleCase {
	return ruleCase{kind, "", one(func(b *bench) node {
		x := b.x("x", 2, 5).Shift(0.07)
		return b.op(kind, nil, x).Mul(x)
	}), small}
}

func positiveCase(kind string) ruleCase {
	return ruleCase{kind, "", one(func(b *bench) node { return b.op(kind, nil, b.positive("x", 2, 5)) }), 0}
}

func binaryCases(kind string) []ruleCase {
	shapes := []struct {
		name string
		a, b []int
	}{
		{"same", []int{2, 3}, []int{2, 3}}, {"left", []int{3}, []int{2, 3}}, {"right", []int{4, 2, 3}, []int{2, 1}},
		{"both", []int{2, 1, 3}, []int{4, 1}}, {"scalar", []int{}, []int{2, 3}}, {"symbol", []int{symB, 3},
			[]int{1, 3}},
		{"symbol-static", []int{symB, 3}, []int{3, 3}}, {"static-symbol", []int{3, 3}, []int{symB, 1}},
	}
	var out []ruleCase
	for _, s := range shapes {
		out = append(out, ruleCase{kind, s.name, one(func(b *bench) node {
			return b.op(kind, nil, b.x("a", s.a...), b.positive("b", s.b...))
		}), small})
	}
	return out
}

var elementwiseCases = append([]ruleCase{
	unaryCase("Identity", nil), unaryCase("Neg", nil), unaryCase("Exp", nil), unaryCase("Erf", nil), unaryCase("Tanh",
		nil),
	unaryCase("Sigmoid", nil), unaryCase("Softplus", nil), unaryCase("Relu", nil), unaryCase("Abs", nil),
	unaryCase("Sin", nil),
	unaryCase("Cos", nil), flatCase("Floor"), flatCase("Ceil"), flatCase("Sign"),
	unaryCase("LeakyRelu", graph.Attrs{"alpha": graph.Attr(float32(0.3))}), unaryCase("LeakyRelu", nil),
	unaryCase("Elu", graph.Attrs{"alpha": graph.Attr(float32(0.7))}), unaryCase("HardSwish", nil),
	unaryCase("HardSigmoid", nil), unaryCase("HardSigmoid", graph.Attrs{"alpha": graph.Attr(float32(0.9)), "beta": graph.Attr(float32(0.4))}),
	positiveCase("Sqrt"), positiveCase("Log"), positiveCase("Reciprocal"),
	flatCase("Round"),
	{"HardSwish", "far", one(func(b *bench) node { return b.op("HardSwish", nil, b.x("x", 9).Scale(2.3)) }), small},
	{"PRelu", "", one(func(b *bench) node { return b.op("PRelu", nil, b.x("x", 2, 3, 4), b.x("slope", 3, 1)) }), small},
	{"Cast", "", one(func(b *bench) node { return b.x("x", 4).Cast(graph.Double).Square().Cast(graph.Float) }), 0},
	{"Cast", "stops at integers", one(func(b *bench) node {
		x := b.x("x", 4)
		return x.Cast(graph.Int64).Cast(graph.Float).Mul(x)
	}), small},
	{"CastLike", "", one(func(b *bench) node {
		x := b.x("x", 4)
		return b.op("CastLike", nil, x, x.ScalarLike(0).Cast(graph.Double)).Exp().Cast(graph.Float)
	}), 0},
	{"Dropout", "", one(func(b *bench) node { return b.op("Dropout", nil, b.x("x", 4)) }), 0},
	{"Pow", "square", one(func(b *bench) node { return b.op("Pow", nil, b.x("x", 5), b.Scalar(2)) }), 0},
	{"Pow", "cube", one(func(b *bench) node { return b.op("Pow", nil, b.x("x", 5), b.Scalar(3)) }), 0},
	{"Pow", "integer exponent", one(func(b *bench) node { return b.op("Pow", nil, b.x("x", 5), b.Ints(3)) }), 0},
	{"Pow", "both", one(func(b *bench) node { return b.op("Pow", nil, b.positive("x", 2, 3), b.x("p", 3)) }), 0},
	{"Max", "three", one(func(b *bench) node {
		return b.op("Max", nil, b.x("a", 2, 3), b.x("b", 3),
			b.x("c", 2, 1).Shift(0.3))
	}), small},
	{"Min", "three", one(func(b *bench) node {
		return b.op("Min", nil, b.x("a", 2, 3), b.x("b", 3),
			b.x("c", 2, 1).Shift(0.3))
	}), small},
	{"Sum", "", one(func(b *bench) node {
		return b.op("Sum", nil, b.x("a", 1, 3), b.x("b", 3), b.x("c", symB,
			1)).Square()
	}), 0},
	{"Mean", "", one(func(b *bench) node {
		return b.op("Mean", nil, b.x("a", 2, 3), b.x("b", 3),
			b.x("c", 2, 1)).Square()
	}), 0},
	{"Where", "broadcast", one(func(b *bench) node {
		c := b.constant("c", 4, 2, 3)
		return c.Greater(c.ScalarLike(0)).Where(b.x("yes", 3), b.x("no", 2, 1)).Square()
	}), 0},
	{"Where", "wide condition", one(func(b *bench) node {
		c := b.constant("c", symB, 1)
		return c.Greater(c.ScalarLike(0)).Where(b.x("yes", 1, 3), b.x("no")).Square()
	}), 0},
	{"Clip", "both", one(func(b *bench) node { return b.op("Clip", nil, b.x("x", 9), b.Scalar(-1), b.Scalar(1.1)) }),
		small},
	{"Clip", "upper only", one(func(b *bench) node { return b.op("Clip", nil, b.x("x", 9), node{}, b.Scalar(1.1)) }),
		small},
	{"Clip", "bounds", one(func(b *bench) node {
		lo, hi := b.x("lo"), b.x("hi")
		b.feeds["lo"].Data[0], b.feeds["hi"].Data[0] = -0.7, 0.9
		return b.op("Clip", nil, b.x("x", 9), lo, hi).Square()
	}), small},
	{graph.Microsoft + ".QuickGelu", "", one(func(b *bench) node {
		return b.Apply(graph.Microsoft, "QuickGelu", graph.Attrs{"alpha": graph.Attr(float32(1.702))}, b.x("x", 2, 5))
	}), 0},
	{graph.Microsoft + ".Gelu", "", one(func(b *bench) node {
		return b.Apply(graph.Microsoft, "Gelu", nil,
			b.x("x", 2, 5))
	}), 0},
}, append(append(append(append(binaryCases("Add"), binaryCases("Sub")...), binaryCases("Mul")...),
	binaryCases("Div")...),
	append(binaryCases("Max"), binaryCases("Min")...)...)...)
