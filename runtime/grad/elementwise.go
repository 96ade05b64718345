package grad

import (
	"math"

	"promptfed/runtime/graph"
)

func ruleSub(c *Call) []node {
	out := []node{c.G(), {}}
	if c.Need(1) {
		out[1] = c.G().Neg()
	}
	return out
}

func ruleMul(c *Call) []node {
	out := make([]node, 2)
	if c.Need(0) {
		out[0] = c.G().Mul(c.X(1))
	}
	if c.Need(1) {
		out[1] = c.G().Mul(c.X(0))
	}
	return out
}

func ruleDiv(c *Call) []node {
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

// rulePow gives p x^(p-1) for the base, and x^p log x for the exponent, where a base of 0 counts as x^p log x = 0.
func rulePow(c *Call) []node {
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

// ruleExtreme sends the gradient of Max and Min to the inputs that attain them, in equal parts where several do.
func ruleExtreme(c *Call) []node {
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

func ruleSum(c *Call) []node {
	out := make([]node, len(c.Op.In))
	for i := range out {
		out[i] = c.G()
	}
	return out
}

func ruleMean(c *Call) []node {
	g := c.G().Scale(1 / float64(len(c.Op.In)))
	out := make([]node, len(c.Op.In))
	for i := range out {
		out[i] = g
	}
	return out
}

// ruleDropout is that of inference, where dropout does nothing.
func ruleDropout(c *Call) []node {
	if t := c.X(2); t.OK() && (t.Op().Literal() == nil || !t.Op().Literal().IsScalar(0)) {
		return c.Fail("training mode is not supported")
	}
	return only(c.G())
}

func castBack(c *Call) []node { return only(c.G().Cast(c.X(0).DType())) }

func ruleWhere(c *Call) []node {
	zero := c.G().ScalarLike(0)
	return []node{{}, c.X(0).Where(c.G(), zero), c.X(0).Where(zero, c.G())}
}

// ruleClip passes the gradient of an element inside the bounds, and on them, to the element, and that of one outside to
// the bound it hit.
func ruleClip(c *Call) []node {
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

func ruleErf(c *Call) []node {
	return only(c.G().Mul(c.X(0).Square().Neg().Exp()).Scale(2 / math.Sqrt(math.Pi)))
}

func ruleLeakyRelu(c *Call) []node {
	a := float64(c.Op.Attrs.Float("alpha", 0.01))
	return only(c.G().Mul(positive(c.X(0)).Scale(1 - a).Shift(a)))
}

func rulePRelu(c *Call) []node {
	x, pos := c.X(0), positive(c.X(0))
	neg := pos.Neg().Shift(1)
	return []node{c.G().Mul(pos.Add(neg.Mul(c.X(1)))), c.G().Mul(neg).Mul(x)}
}

// ruleElu uses a e^x = y + a below zero.
func ruleElu(c *Call) []node {
	a := float64(c.Op.Attrs.Float("alpha", 1))
	pos := positive(c.X(0))
	return only(c.G().Mul(pos.Add(pos.Neg().Shift(1).Mul(c.Y().Shift(a)))))
}

// ruleHardSwish is that of x clip(x/6 + 1/2, 0, 1).
func ruleHardSwish(c *Call) []node {
	x := c.X(0)
	inside := positive(x.Shift(3)).Mul(positive(x.Neg().Shift(3)))
	return only(c.G().Mul(positive(x.Shift(-3)).Add(inside.Mul(x.Scale(1.0 / 3).Shift(0.5)))))
}

func ruleHardSigmoid(c *Call) []node {
	y := c.Y()
	inside := positive(y).Mul(positive(y.Neg().Shift(1)))
	return only(c.G().Mul(inside).Scale(float64(c.Op.Attrs.Float("alpha", 0.2))))
}

// ruleGelu covers the exact form x cdf(x) and, by attribute, its tanh approximation.
func ruleGelu(c *Call) []node {
	x := c.X(0)
	if c.Op.Attrs.Str("approximate", "none") == "tanh" {
		const a = 0.7978845608028654 // sqrt(2/pi)
		x2 := x.Square()
		t := x.Mul(x2.Scale(0.044715).Shift(1)).Scale(a).Tanh()
		inner := x2.Scale(3 * 0.044715).Shift(1).Scale(a)
		slope := t.Shift(1).Add(x.Mul(t.Square().Neg().Shift(1)).Mul(inner)).Scale(0.5)
		return only(c.G().Mul(slope))
	}
	cdf := x.Scale(math.Sqrt2 / 2).Erf().Shift(1).Scale(0.5)
	pdf := x.Square().Scale(-0.5).Exp().Scale(1 / math.Sqrt(2*math.Pi))
	return only(c.G().Mul(cdf.Add(x.Mul(pdf))))
}

// ruleQuickGelu has the slope σ + a(y - yσ) of y = x σ(a x), in few passes over memory.
func ruleQuickGelu(c *Call) []node {
	a, y := float64(c.Op.Attrs.Float("alpha", 1.702)), c.Y()
	s := c.X(0).Scale(a).Sigmoid()
	return only(c.G().Mul(s.Add(y.Sub(y.Mul(s)).Scale(a))))
}
