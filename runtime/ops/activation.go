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
		nonSmooth(activation("LeakyRelu", "alpha float", func(c *call) node {
			a := c.Attrs.Float("alpha", 0.01)
			return c.G().Mul(positive(c.X(0)).MulScalar(1 - a).AddScalar(a))
		})),
		def{Kind: "PRelu", MinInputs: 2, Infer: elementwise(pairwise(nil)), VJP: pReluVJP, NonSmooth: true},
		nonSmooth(activation("ThresholdedRelu", "alpha float", func(c *call) node {
			return c.G().Mul(positive(c.X(0).AddScalar(-c.Attrs.Float("alpha", 1))))
		})),
		activation("Elu", "alpha float", func(c *call) node { // a e^x = y + a for x < 0
			a := c.Attrs.Float("alpha", 1)
			pos := positive(c.X(0))
			return c.G().Mul(pos.Add(pos.Neg().AddScalar(1).Mul(c.Y().AddScalar(a))))
		}),
		nonSmooth(activation("HardSigmoid", "alpha float, beta float", func(c *call) node {
			inside := positive(c.Y()).Mul(positive(c.Y().Neg().AddScalar(1)))
			return c.G().Mul(inside).MulScalar(c.Attrs.Float("alpha", 0.2))
		})),
		nonSmooth(unary("HardSwish", func(x, _, dy node) node { // of x clip(x/6 + 1/2, 0, 1)
			inside := positive(x.AddScalar(3)).Mul(positive(x.Neg().AddScalar(3)))
			return dy.Mul(positive(x.AddScalar(-3)).Add(inside.Mul(x.MulScalar(1.0 / 3).AddScalar(0.5))))
		})),
		def{Kind: "Gelu", MinInputs: 1, Since: 20, Attrs: "approximate string", Infer: sameShape, VJP: geluVJP},
		def{Kind: "Shrink", MinInputs: 1, Attrs: "bias float, lambd float", Infer: sameShape, NonSmooth: true},
		def{Kind: "Hardmax", MinInputs: 1, Attrs: "axis int", Infer: sameShape, NonSmooth: true},

		// gamma (max(0,x) + alpha (e^min(0,x) - 1)) [Klambauer et al. 2017]
		decomposed("Selu", "alpha float, gamma float", func(c *call, in []node) node {
			a, g := c.Attrs.Float("alpha", 1.67326319217681884765625), c.Attrs.Float("gamma", 1.05070102214813232421875)
			return in[0].ReLU().Add(below(in[0]).Exp().AddScalar(-1).MulScalar(a)).MulScalar(g)
		}),
		// max(0,x) + min(0, alpha (e^(x/alpha) - 1)) [Barron 2017]
		decomposed("Celu", "alpha float", func(c *call, in []node) node {
			a := c.Attrs.Float("alpha", 1)
			return in[0].ReLU().Add(below(in[0]).MulScalar(1 / a).Exp().AddScalar(-1).MulScalar(a))
		}),
		def{Kind: "Swish", MinInputs: 1, Since: 24, Attrs: "alpha float", Infer: sameShape,
			Decompose: func(c *call, in []node) node { // x sigmoid(alpha x) [Ramachandran et al. 2017]
				return in[0].Mul(in[0].MulScalar(c.Attrs.Float("alpha", 1)).Sigmoid())
			}},
		decomposed("Softsign", "", func(_ *call, in []node) node { return in[0].Div(in[0].Abs().AddScalar(1)) }),

		activation("Softmax", "axis int", func(c *call) node {
			w := c.Y().Mul(c.G())
			return w.Sub(c.Y().Mul(w.SumKeep(c.Attrs.Int("axis", -1))))
		}),
		activation("LogSoftmax", "axis int", func(c *call) node {
			return c.G().Sub(c.Y().Exp().Mul(c.G().SumKeep(c.Attrs.Int("axis", -1))))
		}),

		// the derivative σ + a(y - yσ) of y = x σ(a x), with few passes over memory
		microsoft(activation("QuickGelu", "alpha float", func(c *call) node {
			a, y := c.Attrs.Float("alpha", 1.702), c.Y()
			s := c.X(0).MulScalar(a).Sigmoid()
			return c.G().Mul(s.Add(y.Sub(y.Mul(s)).MulScalar(a)))
		})),
		microsoft(def{Kind: "Gelu", MinInputs: 1, Infer: sameShape, VJP: geluVJP}),
		microsoft(decomposed("FastGelu", "", decomposeFastGelu)),
		microsoft(def{Kind: "BiasGelu", MinInputs: 2, Infer: sameShape,
			Decompose: func(_ *call, in []node) node { // Gelu of a sum
				x := in[0].Add(in[1])
				return x.MulScalar(0.5).Mul(x.MulScalar(math.Sqrt2 / 2).Erf().AddScalar(1))
			}}),
	)
}

// activation defines a function of each element, or of each vector along an axis, with its gradient.
func activation(kind, attrs string, vjp func(c *call) node) def {
	return def{Kind: kind, MinInputs: 1, Attrs: attrs, Infer: sameShape, VJP: each(vjp)}
}

// decomposed defines an operator of one input, with an output of the same shape, by other operators.
func decomposed(kind, attrs string, decompose func(c *call, in []node) node) def {
	return def{Kind: kind, MinInputs: 1, Attrs: attrs, Infer: sameShape, Decompose: decompose}
}

// below returns min(0,x), with the gradient 1 at 0, as PyTorch's functions have.
func below(x node) node { return apply("Clip", nil, x, node{}, x.ScalarLike(0)) }

func pReluVJP(c *call) []node {
	x, pos := c.X(0), positive(c.X(0))
	neg := pos.Neg().AddScalar(1)
	return []node{c.G().Mul(pos.Add(neg.Mul(c.X(1)))), c.G().Mul(neg).Mul(x)}
}

// geluVJP is the gradient of the exact form x cdf(x) and, by attribute, of the tanh approximation.
func geluVJP(backward *call) []node {
	x := backward.X(0)
	if backward.Attrs.Str("approximate", "none") == "tanh" {
		const a = 0.7978845608028654 // sqrt(2/pi)
		x2 := x.Square()
		t := x.Mul(x2.MulScalar(0.044715).AddScalar(1)).MulScalar(a).Tanh()
		inner := x2.MulScalar(3 * 0.044715).AddScalar(1).MulScalar(a)
		slope := t.AddScalar(1).Add(x.Mul(t.Square().Neg().AddScalar(1)).Mul(inner)).MulScalar(0.5)
		return []node{backward.G().Mul(slope)}
	}

	cdf := x.MulScalar(math.Sqrt2 / 2).Erf().AddScalar(1).MulScalar(0.5)
	pdf := x.Square().MulScalar(-0.5).Exp().MulScalar(1 / math.Sqrt(2*math.Pi))
	return []node{backward.G().Mul(cdf.Add(x.Mul(pdf)))}
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
