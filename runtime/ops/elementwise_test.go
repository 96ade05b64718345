package ops_test

import "promptfed/runtime/graph"

func init() {
	shapes(
		shapeCase{"Add", nil, []any{"2,1,3", "4,1"}, "[2,4,3]"},
		shapeCase{"Mul", nil, []any{"S,3", "1,3"}, "[S,3]"},
		shapeCase{"Add", nil, []any{"2,3", "2,4"}, "Add([2,3], [2,4]): [2,3] and [2,4] do not broadcast"},
		shapeCase{"Where", nil, []any{"2,1", "3", "S,1,1"}, "[S,2,3]"},
		shapeCase{"Equal", nil, []any{"2,1", "3"}, "[2,3]"},
		shapeCase{"Cast", attrs{"to": graph.Attr(int(graph.Double))}, []any{"S,3"}, "[S,3]"},
		shapeCase{"Mystery", nil, []any{"2,3"}, "[?]"},
	)
	for _, kind := range []string{"Add", "Sub", "Mul", "Div", "Max", "Min"} {
		gradients(binaryCases(kind)...)
	}
	gradients(
		unaryCase("Identity", nil),
		unaryCase("Neg", nil),
		unaryCase("Exp", nil),
		unaryCase("Erf", nil),
		unaryCase("Tanh", nil),
		unaryCase("Abs", nil),
		unaryCase("Sin", nil),
		unaryCase("Cos", nil),
		flatCase("Floor"),
		flatCase("Ceil"),
		flatCase("Sign"),
		positiveCase("Sqrt"),
		positiveCase("Log"),
		positiveCase("Reciprocal"),
		flatCase("Round"),
		gradientCase{"Cast", "", one(func(b *bench) node {
			return b.x("x", 4).Cast(graph.Double).Square().Cast(graph.Float)
		}), 0},
		gradientCase{"Cast", "stops at integers", one(func(b *bench) node {
			x := b.x("x", 4)
			return x.Cast(graph.Int64).Cast(graph.Float).Mul(x)
		}), small},
		gradientCase{"CastLike", "", one(func(b *bench) node {
			x := b.x("x", 4)
			return b.op("CastLike", nil, x, x.ScalarLike(0).Cast(graph.Double)).Exp().Cast(graph.Float)
		}), 0},
		gradientCase{"Dropout", "", one(func(b *bench) node { return b.op("Dropout", nil, b.x("x", 4)) }), 0},
		gradientCase{"Pow", "square", one(func(b *bench) node { return b.op("Pow", nil, b.x("x", 5), b.Scalar(2)) }),
			0},
		gradientCase{"Pow", "cube", one(func(b *bench) node { return b.op("Pow", nil, b.x("x", 5), b.Scalar(3)) }), 0},
		gradientCase{"Pow", "integer exponent", one(func(b *bench) node {
			return b.op("Pow", nil, b.x("x", 5), b.Ints(3))
		}), 0},
		gradientCase{"Pow", "exponent 0", one(func(b *bench) node {
			return b.op("Pow", nil, b.zero("x", 3), b.Scalar(0))
		}), 0},
		gradientCase{"Pow", "both", one(func(b *bench) node {
			return b.op("Pow", nil, b.positive("x", 2, 3), b.x("p", 3))
		}), 0},
		gradientCase{"Max", "three", one(func(b *bench) node {
			return b.op("Max", nil, b.x("a", 2, 3), b.x("b", 3), b.x("c", 2, 1).AddScalar(0.3))
		}), small},
		gradientCase{"Min", "three", one(func(b *bench) node {
			return b.op("Min", nil, b.x("a", 2, 3), b.x("b", 3), b.x("c", 2, 1).AddScalar(0.3))
		}), small},
		gradientCase{"Sum", "", one(func(b *bench) node {
			return b.op("Sum", nil, b.x("a", 1, 3), b.x("b", 3), b.x("c", symB, 1)).Square()
		}), 0},
		gradientCase{"Mean", "", one(func(b *bench) node {
			return b.op("Mean", nil, b.x("a", 2, 3), b.x("b", 3), b.x("c", 2, 1)).Square()
		}), 0},
		gradientCase{"Where", "broadcast", one(func(b *bench) node {
			c := b.constant("c", 4, 2, 3)
			return c.Greater(c.ScalarLike(0)).Where(b.x("yes", 3), b.x("no", 2, 1)).Square()
		}), 0},
		gradientCase{"Where", "wide condition", one(func(b *bench) node {
			c := b.constant("c", symB, 1)
			return c.Greater(c.ScalarLike(0)).Where(b.x("yes", 1, 3), b.x("no")).Square()
		}), 0},
		gradientCase{"Clip", "both", one(func(b *bench) node {
			return b.op("Clip", nil, b.x("x", 9), b.Scalar(-1), b.Scalar(1.1))
		}), small},
		gradientCase{"Clip", "upper only", one(func(b *bench) node {
			return b.op("Clip", nil, b.x("x", 9), node{}, b.Scalar(1.1))
		}), small},
		clipCase("bounds", -0.7, 0.9), clipCase("crossed bounds", 0.9, -0.7),
		unaryCase("Sinh", nil), unaryCase("Cosh", nil), unaryCase("Atan", nil), unaryCase("Asinh", nil),
		withinCase("Tan", 0.5, 0), withinCase("Asin", 0.4, 0), withinCase("Acos", 0.4, 0),
		withinCase("Atanh", 0.4, 0), withinCase("Acosh", 0.5, 2.5),
		gradientCase{"Mod", "fmod", one(func(b *bench) node {
			return b.op("Mod", attrs{"fmod": graph.Attr(1)}, b.x("x", 3, 4), b.positive("m", 3, 4))
		}), 1e-3},
	)
}

func unaryCase(kind string, at attrs) gradientCase {
	return gradientCase{kind, "", one(func(b *bench) node { return b.op(kind, at, b.x("x", 2, 5)) }), small}
}

func clipCase(name string, low, high float32) gradientCase {
	return gradientCase{"Clip", name, one(func(b *bench) node {
		lo, hi := b.x("lo"), b.x("hi")
		b.feeds["lo"].Data[0], b.feeds["hi"].Data[0] = low, high
		return b.op("Clip", nil, b.x("x", 9), lo, hi).Square()
	}), small}
}

// flatCase multiplies a piecewise constant function by its argument, so that the derivative is not zero.
func flatCase(kind string) gradientCase {
	return gradientCase{kind, "", one(func(b *bench) node {
		x := b.x("x", 2, 5).AddScalar(0.07)
		return b.op(kind, nil, x).Mul(x)
	}), small}
}

func positiveCase(kind string) gradientCase {
	return gradientCase{kind, "", one(func(b *bench) node { return b.op(kind, nil, b.positive("x", 2, 5)) }), 0}
}

func binaryCases(kind string) []gradientCase {
	shapes := []struct {
		name string
		a, b []int
	}{
		{"same", []int{2, 3}, []int{2, 3}}, {"left", []int{3}, []int{2, 3}}, {"right", []int{4, 2, 3}, []int{2, 1}},
		{"both", []int{2, 1, 3}, []int{4, 1}}, {"scalar", []int{}, []int{2, 3}}, {"symbol", []int{symB, 3},
			[]int{1, 3}},
		{"symbol-static", []int{symB, 3}, []int{3, 3}}, {"static-symbol", []int{3, 3}, []int{symB, 1}},
	}
	var out []gradientCase
	for _, s := range shapes {
		out = append(out, gradientCase{kind, s.name, one(func(b *bench) node {
			return b.op(kind, nil, b.x("a", s.a...), b.positive("b", s.b...))
		}), small})
	}
	return out
}

// withinCase moves the inputs, which are from -2 to 2.2, to where the derivative is not zero.
func withinCase(kind string, scale, shift float64) gradientCase {
	return gradientCase{kind, "", one(func(b *bench) node {
		return b.op(kind, nil, b.x("x", 3, 5).MulScalar(scale).AddScalar(shift))
	}), small}
}
