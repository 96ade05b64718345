package grad

import "promptfed/runtime/graph"

// reduction applies f to the gradient and the value of a reduction, both with size 1 on the axes that it took away.
func reduction(c *Call, f func(g, y node) node) []node {
	if c.Op.Attrs.Int("keepdims", 1) != 0 {
		return only(f(c.G(), c.Y()))
	}
	axes, ok, err := c.Op.ReducedAxes()
	if !ok || err != nil {
		return c.Fail("the reduced axes must be known when the graph is built")
	}
	if len(axes) == 0 {
		return only(f(c.G(), c.Y()))
	}
	return only(f(c.G().Unsqueeze(axes...), c.Y().Unsqueeze(axes...)))
}

func ruleReduceSum(c *Call) []node {
	return reduction(c, func(g, _ node) node { return expandLike(g, c.X(0)) })
}

func ruleReduceMean(c *Call) []node {
	return reduction(c, func(g, _ node) node { return expandLike(g.Div(count(c.X(0), g)), c.X(0)) })
}

// ruleReduceExtreme shares the gradient of a maximum or minimum among the elements that attain it.
func ruleReduceExtreme(c *Call) []node {
	return reduction(c, func(g, y node) node {
		hit := c.X(0).Equal(y).Cast(c.X(0).DType())
		return g.Mul(hit).Div(fit(hit, y))
	})
}

func ruleReduceL1(c *Call) []node {
	return reduction(c, func(g, _ node) node { return g.Mul(unary(c.X(0), "Sign")) })
}

// ruleReduceL2 is x/y, and 0 for a vector of zeros.
func ruleReduceL2(c *Call) []node {
	return reduction(c, func(g, y node) node {
		return c.X(0).Mul(g.Div(y.Add(y.Equal(y.ScalarLike(0)).Cast(y.DType()))))
	})
}

func ruleReduceSumSquare(c *Call) []node {
	return reduction(c, func(g, _ node) node { return c.X(0).Mul(g).Scale(2) })
}

func ruleReduceLogSumExp(c *Call) []node {
	return reduction(c, func(g, y node) node { return c.X(0).Sub(y).Exp().Mul(g) })
}

// count is the number of elements of x that each element of the reduced g stands for.
func count(x, g node) node {
	if x.Shape().Known() && g.Shape().Known() {
		if q, ok := x.Shape().Size().Div(g.Shape().Size()); ok && q.Static() {
			return x.ScalarLike(float64(q.N))
		}
	}
	elements := func(n node) node { return unary(n, "Size").Cast(x.DType()) }
	return elements(x).Div(elements(g))
}

func expandLike(g, x node) node {
	if s, ok := x.Shape().Ints(); ok {
		return g.Expand(s...)
	}
	return g.Graph().Apply(graph.Standard, "Expand", nil, g, x.ShapeOf())
}

func ruleSoftmax(c *Call) []node {
	a := c.Op.Attrs.Int("axis", -1)
	w := c.Y().Mul(c.G())
	return only(w.Sub(c.Y().Mul(w.SumKeep(a))))
}

func ruleLogSoftmax(c *Call) []node {
	a := c.Op.Attrs.Int("axis", -1)
	return only(c.G().Sub(c.Y().Exp().Mul(c.G().SumKeep(a))))
}

// ruleLayerNorm takes mean and inverse deviation from the operator's optional outputs, and recomputes them where an
// exporter left those out.
func ruleLayerNorm(c *Call) []node {
	x, scale := c.X(0), c.X(1)
	if x.Rank() < 0 {
		return c.Fail("the rank of its input is not known")
	}
	first, err := graph.Axis(c.Op.Attrs.Int("axis", -1), x.Rank())
	if err != nil {
		return c.Fail("%v", err)
	}
	if len(c.Op.Out) > 1 && (c.DY[1].OK() || len(c.Op.Out) > 2 && c.DY[2].OK()) || !c.G().OK() {
		return c.Fail("a gradient through its mean or deviation output is not supported")
	}
	var axes, rest []int
	for i := range x.Rank() {
		if i >= first {
			axes = append(axes, i)
		} else {
			rest = append(rest, i)
		}
	}
	var d, inv node
	if len(c.Op.Out) == 3 {
		d, inv = x.Sub(c.Op.Out[1]), c.Op.Out[2]
	} else {
		d = x.Sub(x.MeanKeep(axes...))
		inv = d.Square().MeanKeep(axes...).Shift(float64(c.Op.Attrs.Float("epsilon", 1e-5))).Sqrt().Reciprocal()
	}
	out := make([]node, len(c.Op.In))
	if c.Need(0) {
		g := c.G().Mul(scale)
		along := g.Mul(d).MeanKeep(axes...).Mul(inv.Square())
		out[0] = g.Sub(g.MeanKeep(axes...)).Sub(d.Mul(along)).Mul(inv)
	}
	if c.Need(1) {
		out[1] = sumOver(c.G().Mul(d.Mul(inv)), rest)
	}
	if c.Need(2) {
		out[2] = sumOver(c.G(), rest)
	}
	return out
}

func sumOver(n node, axes []int) node {
	if len(axes) == 0 {
		return n
	}
	return n.Sum(axes...)
}

// ruleBatchNorm is the inference form: a fixed mean and variance per channel.
func ruleBatchNorm(c *Call) []node {
	x, g := c.X(0), c.G()
	switch {
	case c.Op.Attrs.Int("training_mode", 0) != 0:
		return c.Fail("training mode is not supported")
	case x.Rank() < 2:
		return c.Fail("the rank of its input is not known or below 2")
	}
	shape := []int{-1}
	for range x.Rank() - 2 {
		shape = append(shape, 1)
	}
	inv := c.X(4).Shift(float64(c.Op.Attrs.Float("epsilon", 1e-5))).Sqrt().Reciprocal()
	out := make([]node, len(c.Op.In))
	if c.Need(0) {
		out[0] = g.Mul(c.X(1).Mul(inv).Reshape(shape...))
	}
	if c.Need(1) {
		norm := x.Sub(c.X(3).Reshape(shape...)).Mul(inv.Reshape(shape...))
		out[1] = g.Mul(norm).Sum(exceptChannels(x.Rank())...)
	}
	if c.Need(2) {
		out[2] = g.Sum(exceptChannels(x.Rank())...)
	}
	return out
}
