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

func rulePow(c *Call) []node {
	if c.Need(1) {
		return c.Fail("the exponent depends on what is differentiated; only the base may")
	}
	x, p := c.X(0), c.X(1)
	less := p.Sub(p.ScalarLike(1))
	power := x.Graph().Apply(graph.Standard, "Pow", nil, x, less)
	if l := p.Op().Literal(); l != nil && l.Tensor != nil && len(l.Tensor.Data) == 1 && l.Tensor.Data[0] == 2 {
		power = x // ONNX Runtime's Pow is slow, and a square is what exporters write
	}
	if p.DType() != x.DType() {
		p = p.Cast(x.DType())
	}
	return only(c.G().Mul(p.Mul(power)))
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

func ruleWhere(c *Call) []node {
	zero := c.G().ScalarLike(0)
	return []node{{}, c.X(0).Where(c.G(), zero), c.X(0).Where(zero, c.G())}
}

func ruleClip(c *Call) []node {
	inside := c.X(0).Equal(c.Y())
	return only(inside.Where(c.G(), c.G().ScalarLike(0)))
}

func ruleErf(c *Call) []node {
	return only(c.G().Mul(c.X(0).Square().Neg().Exp()).Scale(2 / math.Sqrt(math.Pi)))
}

func ruleLeakyRelu(c *Call) []node {
	a := float64(c.Op.Attrs.Float("alpha", 0.01))
	return only(c.G().Mul(positive(c.X(0)).Scale(1 - a).Shift(a)))
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

func ruleQuickGelu(c *Call) []node {
	a := float64(c.Op.Attrs.Float("alpha", 1.702))
	x := c.X(0)
	s := x.Scale(a).Sigmoid()
	return only(c.G().Mul(s).Mul(x.Mul(s.Neg().Shift(1)).Scale(a).Shift(1)))
}
