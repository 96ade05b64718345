package ops

import (
	"math"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		nonSmooth(unary("Relu", func(_, y, dy node) node { return dy.Mul(positive(y)) })),
		unary("Sigmoid", func(_, y, dy node) node { return dy.Mul(y.Sub(y.Square())) }),
		unary("Softplus", func(x, _, dy node) node { return dy.Mul(x.Sigmoid()) }),
		activation("LeakyRelu", "alpha float", true, leakyReluVJP),
		def{Kind: "PRelu", MinInputs: 2, Infer: elementwise(pairwise(nil)), VJP: pReluVJP, NonSmooth: true},
		activation("ThresholdedRelu", "alpha float", true, thresholdedReluVJP),
		activation("Elu", "alpha float", false, eluVJP),
		activation("HardSigmoid", "alpha float, beta float", true, hardSigmoidVJP),
		activation("HardSwish", "", true, hardSwishVJP),
		def{Kind: "Gelu", MinInputs: 1, Since: 20, Attrs: "approximate string", Infer: sameShape, VJP: geluVJP},
		def{Kind: "Shrink", MinInputs: 1, Attrs: "bias float, lambd float", Infer: sameShape, NonSmooth: true},
		def{Kind: "Hardmax", MinInputs: 1, Attrs: "axis int", Infer: sameShape, NonSmooth: true},

		decomposed("Selu", "alpha float, gamma float", decomposeSelu),
		decomposed("Celu", "alpha float", decomposeCelu),
		def{Kind: "Swish", MinInputs: 1, Since: 24, Attrs: "alpha float", Infer: sameShape,
			Decompose: decomposeSwish},
		decomposed("Softsign", "", func(_ *call, in []node) node { return in[0].Div(in[0].Abs().AddScalar(1)) }),

		def{Kind: "Softmax", MinInputs: 1, Attrs: "axis int", Infer: sameShape, VJP: softmaxVJP},
		def{Kind: "LogSoftmax", MinInputs: 1, Attrs: "axis int", Infer: sameShape, VJP: logSoftmaxVJP},

		def{Domain: graph.Microsoft, Kind: "QuickGelu", MinInputs: 1, Attrs: "alpha float", Infer: sameShape,
			VJP: quickGeluVJP},
		def{Domain: graph.Microsoft, Kind: "Gelu", MinInputs: 1, Infer: sameShape, VJP: geluVJP},
		def{Domain: graph.Microsoft, Kind: "FastGelu", MinInputs: 1, Infer: sameShape,
			Decompose: decomposeFastGelu},
		def{Domain: graph.Microsoft, Kind: "BiasGelu", MinInputs: 2, Infer: sameShape,
			Decompose: decomposeBiasGelu},
	)
}

func activation(kind, attrs string, nonSmooth bool, vjp func(c *call) []node) def {
	return def{Kind: kind, MinInputs: 1, Attrs: attrs, Infer: sameShape, VJP: vjp, NonSmooth: nonSmooth}
}

// decomposed defines an operator of one input, with an output of the same shape, by other operators.
func decomposed(kind, attrs string, decompose func(c *call, in []node) node) def {
	return def{Kind: kind, MinInputs: 1, Attrs: attrs, Infer: sameShape, Decompose: decompose}
}

func leakyReluVJP(c *call) []node {
	a := c.Attrs.Float("alpha", 0.01)
	return []node{c.G().Mul(positive(c.X(0)).MulScalar(1 - a).AddScalar(a))}
}

func pReluVJP(c *call) []node {
	x, pos := c.X(0), positive(c.X(0))
	neg := pos.Neg().AddScalar(1)
	return []node{c.G().Mul(pos.Add(neg.Mul(c.X(1)))), c.G().Mul(neg).Mul(x)}
}

func thresholdedReluVJP(c *call) []node {
	return []node{c.G().Mul(positive(c.X(0).AddScalar(-c.Attrs.Float("alpha", 1))))}
}

// eluVJP uses a e^x = y + a for x < 0.
func eluVJP(c *call) []node {
	a := c.Attrs.Float("alpha", 1)
	pos := positive(c.X(0))
	return []node{c.G().Mul(pos.Add(pos.Neg().AddScalar(1).Mul(c.Y().AddScalar(a))))}
}

// hardSwishVJP is the gradient of x clip(x/6 + 1/2, 0, 1).
func hardSwishVJP(c *call) []node {
	x := c.X(0)
	inside := positive(x.AddScalar(3)).Mul(positive(x.Neg().AddScalar(3)))
	return []node{c.G().Mul(positive(x.AddScalar(-3)).Add(inside.Mul(x.MulScalar(1.0 / 3).AddScalar(0.5))))}
}

func hardSigmoidVJP(c *call) []node {
	y := c.Y()
	inside := positive(y).Mul(positive(y.Neg().AddScalar(1)))
	return []node{c.G().Mul(inside).MulScalar(c.Attrs.Float("alpha", 0.2))}
}

// geluVJP is the gradient of the exact form x cdf(x) and, by attribute, of the tanh approximation.
func geluVJP(c *call) []node {
	x := c.X(0)
	if c.Attrs.Str("approximate", "none") == "tanh" {
		const a = 0.7978845608028654 // sqrt(2/pi)
		x2 := x.Square()
		t := x.Mul(x2.MulScalar(0.044715).AddScalar(1)).MulScalar(a).Tanh()
		inner := x2.MulScalar(3 * 0.044715).AddScalar(1).MulScalar(a)
		slope := t.AddScalar(1).Add(x.Mul(t.Square().Neg().AddScalar(1)).Mul(inner)).MulScalar(0.5)
		return []node{c.G().Mul(slope)}
	}
	cdf := x.MulScalar(math.Sqrt2 / 2).Erf().AddScalar(1).MulScalar(0.5)
	pdf := x.Square().MulScalar(-0.5).Exp().MulScalar(1 / math.Sqrt(2*math.Pi))
	return []node{c.G().Mul(cdf.Add(x.Mul(pdf)))}
}

// quickGeluVJP uses the derivative σ + a(y - yσ) of y = x σ(a x), with few passes over memory.
func quickGeluVJP(c *call) []node {
	a, y := c.Attrs.Float("alpha", 1.702), c.Y()
	s := c.X(0).MulScalar(a).Sigmoid()
	return []node{c.G().Mul(s.Add(y.Sub(y.Mul(s)).MulScalar(a)))}
}

// decomposeSwish returns x sigmoid(alpha x) [Ramachandran et al. 2017].
func decomposeSwish(c *call, in []node) node {
	return in[0].Mul(in[0].MulScalar(c.Attrs.Float("alpha", 1)).Sigmoid())
}

// decomposeCelu returns max(0,x) + min(0, alpha (e^(x/alpha) - 1)) [Barron 2017].
func decomposeCelu(c *call, in []node) node {
	a := c.Attrs.Float("alpha", 1)
	zero := in[0].ScalarLike(0)
	return in[0].ReLU().Add(in[0].Min(zero).MulScalar(1 / a).Exp().AddScalar(-1).MulScalar(a))
}

// decomposeSelu returns gamma (max(0,x) + alpha (e^min(0,x) - 1)) [Klambauer et al. 2017].
func decomposeSelu(c *call, in []node) node {
	a, g := c.Attrs.Float("alpha", 1.67326319217681884765625), c.Attrs.Float("gamma",
		1.05070102214813232421875)
	return in[0].ReLU().Add(in[0].Min(in[0].ScalarLike(0)).Exp().AddScalar(-1).MulScalar(a)).MulScalar(g)
}

// decomposeFastGelu returns ONNX Runtime's tanh form of GELU, of the sum of input and bias.
func decomposeFastGelu(_ *call, in []node) node {
	x := in[0]
	if bias := optional(in, 1); bias.OK() {
		x = x.Add(bias)
	}
	inner := x.Square().MulScalar(0.044715).AddScalar(1).Mul(x).MulScalar(math.Sqrt(2 / math.Pi))
	return x.MulScalar(0.5).Mul(inner.Tanh().AddScalar(1))
}

// decomposeBiasGelu returns ONNX Runtime's Gelu of a sum.
func decomposeBiasGelu(_ *call, in []node) node {
	x := in[0].Add(in[1])
	return x.MulScalar(0.5).Mul(x.MulScalar(math.Sqrt2 / 2).Erf().AddScalar(1))
}

func softmaxVJP(c *call) []node {
	a := c.Attrs.Int("axis", -1)
	w := c.Y().Mul(c.G())
	return []node{w.Sub(c.Y().Mul(w.SumKeep(a)))}
}

func logSoftmaxVJP(c *call) []node {
	a := c.Attrs.Int("axis", -1)
	return []node{c.G().Sub(c.Y().Exp().Mul(c.G().SumKeep(a)))}
}
