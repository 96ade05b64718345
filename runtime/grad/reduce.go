package grad

import "promptfed/runtime/graph"

func reduction(c *Call, f func(g node) node) []node {
	g, ok := spread(c, c.G())
	if !ok {
		return c.Fail("the reduced axes must be known when the graph is built")
	}
	return only(f(g))
}

func ruleReduceSum(c *Call) []node {
	return reduction(c, func(g node) node { return expandLike(g, c.X(0)) })
}

func ruleReduceMean(c *Call) []node {
	return reduction(c, func(g node) node { return expandLike(g.Div(count(c.X(0), g)), c.X(0)) })
}

// ruleReduceExtreme shares the gradient of a maximum or minimum among the elements that attain it.
func ruleReduceExtreme(c *Call) []node {
	y, ok := spread(c, c.Y())
	if !ok {
		return c.Fail("the reduced axes must be known when the graph is built")
	}
	return reduction(c, func(g node) node {
		hit := c.X(0).Equal(y).Cast(c.X(0).DType())
		return g.Mul(hit).Div(sumLike(c, hit))
	})
}

// sumLike adds up h over the axes that c's operator reduces, keeping them.
func sumLike(c *Call, h node) node {
	at := graph.Attrs{"keepdims": 1}
	if a, ok := c.Op.Attrs.Ints("axes"); ok {
		return h.SumKeep(a...)
	}
	return h.Graph().Apply(graph.Standard, "ReduceSum", at, h, c.X(1))
}

func ruleReduceL2(c *Call) []node {
	y, ok := spread(c, c.Y())
	if !ok {
		return c.Fail("the reduced axes must be known when the graph is built")
	}
	return reduction(c, func(g node) node { return c.X(0).Mul(g.Div(y)) })
}

func ruleReduceSumSquare(c *Call) []node {
	return reduction(c, func(g node) node { return c.X(0).Mul(g).Scale(2) })
}

func ruleReduceLogSumExp(c *Call) []node {
	y, ok := spread(c, c.Y())
	if !ok {
		return c.Fail("the reduced axes must be known when the graph is built")
	}
	return reduction(c, func(g node) node { return c.X(0).Sub(y).Exp().Mul(g) })
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

// ruleLayerNorm recomputes mean and deviation, so that exports without those outputs work too.
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
	d := x.Sub(x.MeanKeep(axes...))
	inv := d.Square().MeanKeep(axes...).Shift(float64(c.Op.Attrs.Float("epsilon", 1e-5))).Sqrt().Reciprocal()
	norm := d.Mul(inv)
	out := make([]node, len(c.Op.In))
	if c.Need(0) {
		g := c.G().Mul(scale)
		out[0] = g.Sub(g.MeanKeep(axes...)).Sub(norm.Mul(g.Mul(norm).MeanKeep(axes...))).Mul(inv)
	}
	if c.Need(1) {
		out[1] = sumOver(c.G().Mul(norm), rest)
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

// ruleBatchNorm is the inference form: a fixed scale per channel.
func ruleBatchNorm(c *Call) []node {
	if c.Op.Attrs.Int("training_mode", 0) != 0 {
		return c.Fail("training mode is not supported")
	}
	if c.Need(1) || c.Need(2) || c.Need(3) || c.Need(4) {
		return c.Fail("only the gradient of its data is supported")
	}
	k := c.X(1).Div(c.X(4).Shift(float64(c.Op.Attrs.Float("epsilon", 1e-5))).Sqrt())
	shape := []int{-1}
	for range c.X(0).Rank() - 2 {
		shape = append(shape, 1)
	}
	return only(c.G().Mul(k.Reshape(shape...)))
}
