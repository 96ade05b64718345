package ops

import (
	"fmt"
	"math"
	"slices"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		binary("Add", pairwise(func(a, b graph.Dim) (graph.Dim, bool) { return a.Add(b), true }),
			func(c *call) []node { return []node{c.G(), c.G()} }),
		binary("Sub", pairwise(func(a, b graph.Dim) (graph.Dim, bool) { return a.Sub(b), true }),
			each(func(c *call) node { return c.G() }, func(c *call) node { return c.G().Neg() })),
		binary("Mul", pairwise(func(a, b graph.Dim) (graph.Dim, bool) { return a.Mul(b), true }),
			each(func(c *call) node { return c.G().Mul(c.X(1)) }, func(c *call) node { return c.G().Mul(c.X(0)) })),
		binary("Div", pairwise(foldDiv), each(func(c *call) node { return c.G().Div(c.X(1)) },
			func(c *call) node { return c.G().Div(c.X(1)).Mul(c.Y()).Neg() })),
		def{Kind: "Mod", MinInputs: 2, Attrs: "fmod int", Infer: elementwise(pairwise(foldMod)), NonSmooth: true,
			VJP: func(c *call) []node {
				// of a - b q: the quotient q, rounded down (for fmod, towards zero), is constant between its jumps
				q := c.X(0).Sub(c.Y()).Div(c.X(1))
				return []node{c.G(), c.G().Mul(q).Neg()}
			}},
		def{Kind: "Pow", MinInputs: 2, Infer: func(o *infer) error { return broadcast(o, o.In[:2]) },
			VJP: each(powBase, powExponent)},
		variadic("Max", numbers(func(a, b int) int { return max(a, b) }), extremeVJP, true),
		variadic("Min", numbers(func(a, b int) int { return min(a, b) }), extremeVJP, true),
		variadic("Sum", pairwise(nil), func(c *call) []node { return slices.Repeat([]node{c.G()}, len(c.In)) }, false),
		variadic("Mean", pairwise(nil), func(c *call) []node {
			return slices.Repeat([]node{c.G().MulScalar(1 / float64(len(c.In)))}, len(c.In))
		}, false),

		comparison("Equal", pairwise(foldEqual)),
		comparison("Greater", predicate(func(a, b int) bool { return a > b })),
		comparison("Less", predicate(func(a, b int) bool { return a < b })),
		comparison("GreaterOrEqual", predicate(func(a, b int) bool { return a >= b })),
		comparison("LessOrEqual", predicate(func(a, b int) bool { return a <= b })),
		comparison("And", predicate(func(a, b int) bool { return a != 0 && b != 0 })),
		comparison("Or", predicate(func(a, b int) bool { return a != 0 || b != 0 })),
		comparison("Xor", predicate(func(a, b int) bool { return (a != 0) != (b != 0) })),
		def{Kind: "Not", MinInputs: 1, Infer: typed(graph.Bool, inferNot)},
		def{Kind: "IsNaN", MinInputs: 1, Infer: typed(graph.Bool, sameShape)},
		def{Kind: "IsInf", MinInputs: 1, Attrs: "detect_negative int, detect_positive int",
			Infer: typed(graph.Bool, sameShape)},
		def{Kind: "Where", MinInputs: 3, Infer: inferWhere, VJP: func(c *call) []node {
			zero := c.G().ScalarLike(0)
			return []node{{}, c.X(0).Where(c.G(), zero), c.X(0).Where(zero, c.G())}
		}},

		def{Kind: "Identity", MinInputs: 1, VJP: passGradient, Infer: func(o *infer) error {
			o.SetContent(o.In[0].ConstantInts())
			return sameShape(o)
		}},
		def{Kind: "Cast", MinInputs: 1, Attrs: "to int, saturate int", Infer: inferCast, VJP: castVJP},
		def{Kind: "CastLike", MinInputs: 2, Attrs: "saturate int", Infer: inferCastLike, VJP: castVJP},
		def{Kind: "Dropout", MinInputs: 1, Infer: inferDropout, VJP: dropoutVJP},
		def{Kind: "Clip", MinInputs: 1, Infer: sameShape, NonSmooth: true, VJP: each(
			// to the element inside and on the bounds, otherwise to the bound; an upper bound below the lower one wins
			masked(func(c *call) node { return c.X(0).Equal(c.Y()) }),
			masked(func(c *call) node { return apply("And", nil, c.Y().Greater(c.X(0)), c.Y().Equal(c.X(1))) }),
			masked(func(c *call) node { return raised(c).Greater(c.X(2)) }))},

		unary("Neg", func(_, _, dy node) node { return dy.Neg() }),
		unary("Exp", func(_, y, dy node) node { return dy.Mul(y) }),
		unary("Log", func(x, _, dy node) node { return dy.Div(x) }),
		unary("Sqrt", func(_, y, dy node) node { return dy.Div(y).MulScalar(0.5) }),
		unary("Reciprocal", func(_, y, dy node) node { return dy.Mul(y.Square()).Neg() }),
		nonSmooth(unary("Abs", func(x, _, dy node) node { return dy.Mul(apply("Sign", nil, x)) })),
		unary("Erf", func(x, _, dy node) node {
			return dy.Mul(x.Square().Neg().Exp()).MulScalar(2 / math.Sqrt(math.Pi))
		}),
		stepwise("Sign"), stepwise("Floor"), stepwise("Ceil"), stepwise("Round"),

		unary("Sin", func(x, _, dy node) node { return dy.Mul(apply("Cos", nil, x)) }),
		unary("Cos", func(x, _, dy node) node { return dy.Mul(apply("Sin", nil, x)).Neg() }),
		unary("Tan", func(_, y, dy node) node { return dy.Mul(y.Square().AddScalar(1)) }),
		unary("Sinh", func(x, _, dy node) node { return dy.Mul(apply("Cosh", nil, x)) }),
		unary("Cosh", func(x, _, dy node) node { return dy.Mul(apply("Sinh", nil, x)) }),
		unary("Tanh", func(_, y, dy node) node { return dy.Sub(dy.Mul(y.Square())) }),
		unary("Asin", func(x, _, dy node) node { return dy.Div(x.Square().Neg().AddScalar(1).Sqrt()) }),
		unary("Acos", func(x, _, dy node) node { return dy.Div(x.Square().Neg().AddScalar(1).Sqrt()).Neg() }),
		unary("Atan", func(x, _, dy node) node { return dy.Div(x.Square().AddScalar(1)) }),
		unary("Asinh", func(x, _, dy node) node { return dy.Div(x.Square().AddScalar(1).Sqrt()) }),
		unary("Acosh", func(x, _, dy node) node { return dy.Div(x.Square().AddScalar(-1).Sqrt()) }),
		unary("Atanh", func(x, _, dy node) node { return dy.Div(x.Square().Neg().AddScalar(1)) }),
	)
}

func binary(kind string, f fold, vjp func(c *call) []node) def {
	return def{Kind: kind, MinInputs: 2, Infer: elementwise(f), VJP: vjp}
}

func variadic(kind string, f fold, vjp func(c *call) []node, nonSmooth bool) def {
	return def{Kind: kind, MinInputs: 1, Infer: elementwise(f), VJP: vjp, NonSmooth: nonSmooth}
}

func comparison(kind string, f fold) def {
	return def{Kind: kind, MinInputs: 2, Infer: typed(graph.Bool, func(o *infer) error {
		propagate(o, f)
		return broadcast(o, o.In[:2])
	})}
}

// stepwise defines a function that is constant between its jumps.
func stepwise(kind string) def {
	return def{Kind: kind, MinInputs: 1, Infer: sameShape, VJP: zeroGradient, NonSmooth: true}
}

// elementwise is the shape rule of operators with inputs of one type that broadcast.
func elementwise(f fold) func(*infer) error {
	return func(o *infer) error {
		if err := o.RequireInputs(len(o.In)); err != nil {
			return err
		}
		for _, n := range o.In[1:] {
			if t := o.In[0].DType(); n.DType() != t && n.DType() != 0 && t != 0 {
				return fmt.Errorf("types %v and %v differ", t, n.DType())
			}
		}
		propagate(o, f)
		return broadcast(o, o.In)
	}
}

// broadcast sets the shape of the output to the common shape of in.
func broadcast(o *infer, in []node) error {
	s := in[0].Shape()
	for _, n := range in[1:] {
		var err error
		if s, err = graph.Broadcast(s, n.Shape()); err != nil {
			return err
		}
	}

	return o.Set(s)
}

func foldDiv(a, b graph.Dim) (graph.Dim, bool) {
	if a.Static() && b.Static() && b.N != 0 {
		return graph.StaticDim(a.N / b.N), true
	}
	return a.Div(b)
}

func foldMod(a, b graph.Dim) (graph.Dim, bool) {
	if a.Static() && b.Static() && b.N > 0 && a.N >= 0 {
		return graph.StaticDim(a.N % b.N), true
	}
	return graph.Dim{}, false
}

func foldEqual(a, b graph.Dim) (graph.Dim, bool) {
	if a.Static() && b.Static() || a == b {
		return graph.BoolDim(a == b), true
	}
	return graph.StaticDim(0), a.Is(-1) || b.Is(-1) // a size is never -1
}

// powBase returns p x^(p-1), and 0 for an exponent of 0.
func powBase(c *call) node {
	x, p := c.X(0), c.X(1).Cast(c.X(0).DType())
	power := x // for squares, which exporters write, and for which ONNX Runtime's Pow is slow
	if l := c.X(1).Op().Literal(); l == nil || !l.IsScalar(2) {
		power = apply("Pow", nil, x, p.Equal(p.ScalarLike(0)).Where(p, p.AddScalar(-1)))
	}
	return c.G().Mul(p.Mul(power))
}

// powExponent returns x^p log x, and 0 for a base of 0.
func powExponent(c *call) node {
	x, zero := c.X(0), c.X(0).ScalarLike(0)
	log := x.Equal(zero).Where(zero, x.Log())
	return c.G().Mul(c.Y()).Mul(log)
}

// extremeVJP passes the gradient of Max and Min to the inputs that attain the value, in equal parts if several do.
func extremeVJP(backward *call) []node {
	attains := make([]node, len(backward.In))
	var count node
	for i, x := range backward.In {
		attains[i] = x.Equal(backward.Y()).Cast(backward.Y().DType())
		if i == 0 {
			count = attains[i]
		} else {
			count = count.Add(attains[i])
		}
	}

	share := backward.G().Div(count)
	for i := range attains {
		attains[i] = share.Mul(attains[i])
	}

	return attains
}

func inferNot(o *infer) error {
	propagate(o, func(args []graph.Dim) (graph.Dim, bool) { return graph.BoolDim(args[0].N == 0), args[0].Static() })
	return sameShape(o)
}

func inferWhere(o *infer) error {
	o.SetType(0, o.In[1].DType())
	propagate(o, func(args []graph.Dim) (graph.Dim, bool) {
		if args[0].Is(0) {
			return args[2], true
		}
		return args[1], args[0].Static()
	})

	return broadcast(o, o.In[:3])
}

func inferCast(inference *infer) error {
	to := graph.DType(inference.Attrs.Int("to", int(graph.Float)))
	inference.SetType(0, to)
	switch to {
	case graph.Int64, graph.Int32:
		inference.SetContent(inference.In[0].ConstantInts())
	case graph.Bool:
		propagate(inference, func(args []graph.Dim) (graph.Dim, bool) {
			return graph.BoolDim(args[0].N != 0), args[0].Static()
		})
	}

	return sameShape(inference)
}

func inferCastLike(o *infer) error {
	o.SetType(0, o.In[1].DType())
	return sameShape(o)
}

// castVJP returns zeros for the second input of CastLike, of which only the type matters.
func castVJP(c *call) []node {
	out := []node{c.G().Cast(c.X(0).DType())}
	if c.NeedsGrad(1) {
		out = append(out, ZerosLike(c.X(1)))
	}
	return out
}

func inferDropout(o *infer) error {
	if len(o.Out) > 1 {
		o.SetType(1, graph.Bool)
		o.SetOutput(1, o.In[0].Shape())
	}
	return sameShape(o)
}

// dropoutVJP is the gradient at inference, where dropout is the identity.
func dropoutVJP(c *call) []node {
	if t := c.X(2); t.OK() && (t.Op().Literal() == nil || !t.Op().Literal().IsScalar(0)) {
		return c.Fail("training mode is not supported")
	}
	return []node{c.G()}
}

// raised returns the first input of a Clip, raised to the lower bound if there is one.
func raised(c *call) node {
	if low := c.X(1); low.OK() {
		return c.X(0).Max(low)
	}
	return c.X(0)
}

// masked returns the gradient of the output where f holds, and zero elsewhere.
func masked(f func(c *call) node) func(c *call) node {
	return func(c *call) node {
		zero := c.G().ScalarLike(0)
		return f(c).Where(c.G(), zero)
	}
}
