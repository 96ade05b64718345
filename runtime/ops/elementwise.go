package ops

import (
	"fmt"
	"math"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		binary("Add", pairwise(func(a, b graph.Dim) (graph.Dim, bool) { return a.Add(b), true }),
			func(c *call) []node { return []node{c.G(), c.G()} }),
		binary("Sub", pairwise(func(a, b graph.Dim) (graph.Dim, bool) { return a.Sub(b), true }), subVJP),
		binary("Mul", pairwise(func(a, b graph.Dim) (graph.Dim, bool) { return a.Mul(b), true }), mulVJP),
		binary("Div", pairwise(foldDiv), divVJP),
		graph.Def{Kind: "Mod", MinInputs: 2, Attrs: "fmod int", Infer: elementwise(pairwise(foldMod)), VJP: modVJP,
			NonSmooth: true},
		graph.Def{Kind: "Pow", MinInputs: 2, Infer: inferPow, VJP: powVJP},
		variadic("Max", numbers(func(a, b int) int { return max(a, b) }), extremeVJP, true),
		variadic("Min", numbers(func(a, b int) int { return min(a, b) }), extremeVJP, true),
		variadic("Sum", pairwise(nil), sumVJP, false),
		variadic("Mean", pairwise(nil), meanVJP, false),

		comparison("Equal", pairwise(foldEqual)),
		comparison("Greater", predicate(func(a, b int) bool { return a > b })),
		comparison("Less", predicate(func(a, b int) bool { return a < b })),
		comparison("GreaterOrEqual", predicate(func(a, b int) bool { return a >= b })),
		comparison("LessOrEqual", predicate(func(a, b int) bool { return a <= b })),
		comparison("And", predicate(func(a, b int) bool { return a != 0 && b != 0 })),
		comparison("Or", predicate(func(a, b int) bool { return a != 0 || b != 0 })),
		comparison("Xor", predicate(func(a, b int) bool { return (a != 0) != (b != 0) })),
		graph.Def{Kind: "Not", MinInputs: 1, Infer: inferNot},
		graph.Def{Kind: "IsNaN", MinInputs: 1, Infer: inferBool},
		graph.Def{Kind: "IsInf", MinInputs: 1, Attrs: "detect_negative int, detect_positive int", Infer: inferBool},
		graph.Def{Kind: "Where", MinInputs: 3, Infer: inferWhere, VJP: whereVJP},

		graph.Def{Kind: "Identity", MinInputs: 1, Infer: inferIdentity, VJP: passGradient},
		graph.Def{Kind: "Cast", MinInputs: 1, Attrs: "to int, saturate int", Infer: inferCast, VJP: castVJP},
		graph.Def{Kind: "CastLike", MinInputs: 2, Attrs: "saturate int", Infer: inferCastLike, VJP: castVJP},
		graph.Def{Kind: "Dropout", MinInputs: 1, Infer: inferDropout, VJP: dropoutVJP},
		graph.Def{Kind: "Clip", MinInputs: 1, Infer: graph.SameShape, VJP: clipVJP, NonSmooth: true},

		unary("Neg", func(_, _, dy node) node { return dy.Neg() }),
		unary("Exp", func(_, y, dy node) node { return dy.Mul(y) }),
		unary("Log", func(x, _, dy node) node { return dy.Div(x) }),
		unary("Sqrt", func(_, y, dy node) node { return dy.Div(y).Scale(0.5) }),
		unary("Reciprocal", func(_, y, dy node) node { return dy.Mul(y.Square()).Neg() }),
		nonSmooth(unary("Abs", func(x, _, dy node) node { return dy.Mul(apply("Sign", x)) })),
		unary("Erf", func(x, _, dy node) node {
			return dy.Mul(x.Square().Neg().Exp()).Scale(2 / math.Sqrt(math.Pi))
		}),
		stepwise("Sign"), stepwise("Floor"), stepwise("Ceil"), stepwise("Round"),

		unary("Sin", func(x, _, dy node) node { return dy.Mul(apply("Cos", x)) }),
		unary("Cos", func(x, _, dy node) node { return dy.Mul(apply("Sin", x)).Neg() }),
		unary("Tan", func(_, y, dy node) node { return dy.Mul(y.Square().Shift(1)) }),
		unary("Sinh", func(x, _, dy node) node { return dy.Mul(apply("Cosh", x)) }),
		unary("Cosh", func(x, _, dy node) node { return dy.Mul(apply("Sinh", x)) }),
		unary("Tanh", func(_, y, dy node) node { return dy.Sub(dy.Mul(y.Square())) }),
		unary("Asin", func(x, _, dy node) node { return dy.Div(x.Square().Neg().Shift(1).Sqrt()) }),
		unary("Acos", func(x, _, dy node) node { return dy.Div(x.Square().Neg().Shift(1).Sqrt()).Neg() }),
		unary("Atan", func(x, _, dy node) node { return dy.Div(x.Square().Shift(1)) }),
		unary("Asinh", func(x, _, dy node) node { return dy.Div(x.Square().Shift(1).Sqrt()) }),
		unary("Acosh", func(x, _, dy node) node { return dy.Div(x.Square().Shift(-1).Sqrt()) }),
		unary("Atanh", func(x, _, dy node) node { return dy.Div(x.Square().Neg().Shift(1)) }),
	)
}

func binary(kind string, f fold, vjp func(c *call) []node) graph.Def {
	return graph.Def{Kind: kind, MinInputs: 2, Infer: elementwise(f), VJP: vjp}
}

func variadic(kind string, f fold, vjp func(c *call) []node, nonSmooth bool) graph.Def {
	return graph.Def{Kind: kind, MinInputs: 1, Infer: elementwise(f), VJP: vjp, NonSmooth: nonSmooth}
}

func comparison(kind string, f fold) graph.Def {
	return graph.Def{Kind: kind, MinInputs: 2, Infer: func(o *infer) error {
		o.SetType(0, graph.Bool)
		propagate(o, f)
		return broadcast(o, o.In[:2])
	}}
}

// stepwise is a function that is constant between its jumps.
func stepwise(kind string) graph.Def {
	return graph.Def{Kind: kind, MinInputs: 1, Infer: graph.SameShape, VJP: zeroGradient, NonSmooth: true}
}

// elementwise is the shape rule of operators over inputs of one type that broadcast.
func elementwise(f fold) func(*infer) error {
	return func(o *infer) error {
		if err := o.Need(len(o.In)); err != nil {
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

// broadcast gives the output the common shape of in.
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
		return graph.D(a.N / b.N), true
	}
	return a.Div(b)
}

func foldMod(a, b graph.Dim) (graph.Dim, bool) {
	if a.Static() && b.Static() && b.N > 0 && a.N >= 0 {
		return graph.D(a.N % b.N), true
	}
	return graph.Dim{}, false
}

func foldEqual(a, b graph.Dim) (graph.Dim, bool) {
	if a.Static() && b.Static() || a == b {
		return graph.Truth(a == b), true
	}
	return graph.D(0), a.Is(-1) || b.Is(-1) // a size is never -1
}

func subVJP(c *call) []node {
	out := []node{c.G(), {}}
	if c.Need(1) {
		out[1] = c.G().Neg()
	}
	return out
}

func mulVJP(c *call) []node {
	out := make([]node, 2)
	if c.Need(0) {
		out[0] = c.G().Mul(c.X(1))
	}
	if c.Need(1) {
		out[1] = c.G().Mul(c.X(0))
	}
	return out
}

func divVJP(c *call) []node {
	out := make([]node, 2)
	q := c.G().Div(c.X(1))
	if c.Need(0) {
		out[0] = q
	}
	if c.Need(1) {
		out[1] = q.Mul(c.Y()).Neg()
	}
	return out
}

// modVJP follows a - b q, where q, the quotient rounded down, or towards zero for fmod, is constant between its jumps.
func modVJP(c *call) []node {
	q := c.X(0).Sub(c.Y()).Div(c.X(1))
	return []node{c.G(), c.G().Mul(q).Neg()}
}

// inferPow lets base and exponent be of different types.
func inferPow(o *infer) error {
	if err := o.Need(len(o.In)); err != nil {
		return err
	}
	return broadcast(o, o.In)
}

// powVJP gives p x^(p-1) for the base, and x^p log x for the exponent, where a base of 0 counts as x^p log x = 0.
func powVJP(c *call) []node {
	x, p := c.X(0), c.X(1).Cast(c.X(0).DType())
	out := make([]node, 2)
	if c.Need(0) {
		power := x // of a square, which exporters write and ONNX Runtime's Pow is slow at
		if l := c.X(1).Op().Literal(); l == nil || !l.IsScalar(2) {
			power = x.Graph().Apply(graph.Standard, "Pow", nil, x, p.Shift(-1))
		}
		out[0] = c.G().Mul(p.Mul(power))
	}
	if c.Need(1) {
		zero := x.ScalarLike(0)
		log := x.Equal(zero).Where(zero, x.Log())
		out[1] = c.G().Mul(c.Y()).Mul(log)
	}
	return out
}

// extremeVJP sends the gradient of Max and Min to the inputs that attain them, in equal parts where several do.
func extremeVJP(c *call) []node {
	hits := make([]node, len(c.Op.In))
	var count node
	for i, x := range c.Op.In {
		hits[i] = x.Equal(c.Y()).Cast(c.Y().DType())
		if i == 0 {
			count = hits[i]
		} else {
			count = count.Add(hits[i])
		}
	}
	share := c.G().Div(count)
	for i := range hits {
		hits[i] = share.Mul(hits[i])
	}
	return hits
}

func sumVJP(c *call) []node {
	out := make([]node, len(c.Op.In))
	for i := range out {
		out[i] = c.G()
	}
	return out
}

func meanVJP(c *call) []node {
	g := c.G().Scale(1 / float64(len(c.Op.In)))
	out := make([]node, len(c.Op.In))
	for i := range out {
		out[i] = g
	}
	return out
}

func inferBool(o *infer) error {
	o.SetType(0, graph.Bool)
	return graph.SameShape(o)
}

func inferNot(o *infer) error {
	propagate(o, func(args []graph.Dim) (graph.Dim, bool) { return graph.Truth(args[0].N == 0), args[0].Static() })
	return inferBool(o)
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

func whereVJP(c *call) []node {
	zero := c.G().ScalarLike(0)
	return []node{{}, c.X(0).Where(c.G(), zero), c.X(0).Where(zero, c.G())}
}

func inferIdentity(o *infer) error {
	o.SetContent(o.In[0].Content())
	return graph.SameShape(o)
}

func inferCast(o *infer) error {
	to := graph.DType(o.Attrs.Int("to", int(graph.Float)))
	o.SetType(0, to)
	switch to {
	case graph.Int64, graph.Int32:
		o.SetContent(o.In[0].Content())
	case graph.Bool:
		propagate(o, func(args []graph.Dim) (graph.Dim, bool) { return graph.Truth(args[0].N != 0), args[0].Static() })
	}
	return graph.SameShape(o)
}

func inferCastLike(o *infer) error {
	o.SetType(0, o.In[1].DType())
	return graph.SameShape(o)
}

// castVJP leaves the second input of CastLike, which gives a type only, without a gradient.
func castVJP(c *call) []node {
	c.NotNeeded(1)
	return []node{c.G().Cast(c.X(0).DType())}
}

func inferDropout(o *infer) error {
	if len(o.Out) > 1 {
		o.SetType(1, graph.Bool)
		o.SetOutput(1, o.In[0].Shape())
	}
	return graph.SameShape(o)
}

// dropoutVJP is that of inference, where dropout does nothing.
func dropoutVJP(c *call) []node {
	if t := c.X(2); t.OK() && (t.Op().Literal() == nil || !t.Op().Literal().IsScalar(0)) {
		return c.Fail("training mode is not supported")
	}
	return []node{c.G()}
}

// clipVJP passes the gradient of an element inside the bounds, and on them, to the element, and that of one outside to
// the bound it hit.
func clipVJP(c *call) []node {
	x, zero := c.X(0), c.G().ScalarLike(0)
	out := make([]node, len(c.Op.In))
	out[0] = x.Equal(c.Y()).Where(c.G(), zero)
	if c.Need(1) {
		out[1] = c.X(1).Greater(x).Where(c.G(), zero)
	}
	if c.Need(2) {
		out[2] = x.Greater(c.X(2)).Where(c.G(), zero)
	}
	return out
}
