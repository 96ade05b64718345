package grad

import "promptfed/runtime/graph"

// ruleTopK sends the gradient of each value to where it was taken from.
func ruleTopK(c *Call) []node {
	if len(c.Op.Out) < 2 || !c.G().OK() {
		return c.Fail("it needs its output of indices")
	}
	return only(c.G().Graph().Apply(graph.Standard, "ScatterElements",
		graph.Attrs{"axis": c.Op.Attrs.Int("axis", -1), "reduction": "add"}, zerosLike(c.X(0)), c.Op.Out[1], c.G()))
}

// ruleReduceProd is the product of all other elements: y/x, and where one element is 0 the product of the rest for it.
func ruleReduceProd(c *Call) []node {
	x, axes := c.X(0), []node(nil)
	if len(c.Op.In) > 1 {
		axes = []node{c.X(1)}
	}
	keep := graph.Attrs{"keepdims": 1, "noop_with_empty_axes": c.Op.Attrs.Int("noop_with_empty_axes", 0)}
	if a, ok := c.Op.Attrs.Ints("axes"); ok {
		keep["axes"] = a
	}
	over := func(kind string, n node) node {
		return n.Graph().Apply(graph.Standard, kind, keep, append([]node{n}, axes...)...)
	}
	zero, one := x.ScalarLike(0), x.ScalarLike(1)
	isZero := x.Equal(zero)
	rest := isZero.Where(one, x)
	product, zeros := over("ReduceProd", rest), over("ReduceSum", isZero.Cast(x.DType()))
	others := isZero.Where(product.Mul(zeros.Equal(one).Cast(x.DType())),
		product.Div(rest).Mul(zeros.Equal(zero).Cast(x.DType())))
	return reduction(c, func(g, _ node) node { return g.Mul(others) })
}

func ruleReduceLogSum(c *Call) []node {
	return reduction(c, func(g, y node) node { return expandLike(g.Div(y.Exp()), c.X(0)) })
}

// ruleMod follows a - b q, where q, the quotient rounded down, or towards zero for fmod, is constant between its jumps.
func ruleMod(c *Call) []node {
	q := c.X(0).Sub(c.Y()).Div(c.X(1))
	return []node{c.G(), c.G().Mul(q).Neg()}
}

func ruleReverse(c *Call) []node {
	return only(c.G().Graph().Apply(graph.Standard, "ReverseSequence", c.Op.Attrs, c.G(), c.X(1)))
}

// padByIndex adds the gradient of each element of a padded axis to the element it is a copy of: the same padding of 0,
// 1, 2, ... says which.
func padByIndex(c *Call) []node {
	x, g := c.X(0), c.X(0).Graph()
	axes, ok := known(c.X(3))
	if !ok || x.Rank() < 0 {
		return c.Fail("the axes and the rank of its input must be known when the graph is built")
	}
	if axes == nil {
		axes = axesFrom(0, x.Rank())
	}
	d := c.G()
	for i, axis := range axes {
		a, err := graph.Axis(axis, x.Rank())
		if err != nil {
			return c.Fail("%v", err)
		}
		if p, ok := known(c.X(1)); ok && len(p) == 2*len(axes) && p[i] == 0 && p[i+len(axes)] == 0 {
			continue
		}
		positions := g.Apply(graph.Standard, "Range", nil, g.Scalar64(0), sizeOf(x, a).Squeeze(0), g.Scalar64(1))
		pads := c.X(1).Gather(0, g.Ints(i, i+len(axes))).Cast(graph.Int64)
		d = scatterAxis(d, sizeOf(x, a), a, g.Apply(graph.Standard, "Pad", graph.Attrs{"mode": c.Op.Attrs.Str("mode",
			"")}, positions, pads))
	}
	return only(d)
}
