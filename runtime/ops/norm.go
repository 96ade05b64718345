package ops

import (
	"slices"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		graph.Def{Kind: "LayerNormalization", MinInputs: 2, Attrs: "axis int, epsilon float, stash_type int",
			Infer: inferLayerNorm, VJP: layerNormVJP},
		graph.Def{Kind: "BatchNormalization", MinInputs: 5, Attrs: "epsilon float, momentum float, training_mode int",
			Infer: graph.SameShape, VJP: batchNormVJP},
		graph.Def{Kind: "InstanceNormalization", MinInputs: 3, Attrs: "epsilon float", Infer: graph.SameShape,
			Decompose: decomposeInstanceNorm},
		graph.Def{Kind: "RMSNormalization", MinInputs: 2, Since: 23, Attrs: "axis int, epsilon float, stash_type int",
			Infer: graph.SameShape, Decompose: decomposeRMSNorm},
		graph.Def{Kind: "SimplifiedLayerNormalization", MinInputs: 2, Attrs: "axis int, epsilon float, stash_type int",
			Infer: graph.SameShape, Decompose: decomposeRMSNorm},
		graph.Def{Domain: graph.Microsoft, Kind: "SkipLayerNormalization", MinInputs: 3, Attrs: "epsilon float",
			Infer: graph.SameShape, Decompose: decomposeSkipNorm},
		graph.Def{Kind: "LpNormalization", MinInputs: 1, Attrs: "axis int, p int", Infer: graph.SameShape,
			Decompose: decomposeLpNorm},
		graph.Def{Kind: "MeanVarianceNormalization", MinInputs: 1, Attrs: "axes ints", Infer: graph.SameShape,
			Decompose: decomposeMeanVariance},
		graph.Def{Kind: "LRN", MinInputs: 1, Attrs: "alpha float, beta float, bias float, size int", Infer: graph.SameShape},
	)
}

func inferLayerNorm(o *infer) error {
	in := o.In[0].Shape()
	if in == nil {
		return nil
	}
	a, err := graph.Axis(o.Attrs.Int("axis", -1), len(in))
	if err != nil {
		return err
	}
	stat := slices.Clone(in)
	for i := a; i < len(stat); i++ {
		stat[i] = graph.D(1)
	}
	for i := range o.Out[1:] {
		o.SetOutput(1+i, stat)
	}
	return graph.SameShape(o)
}

// layerNormVJP takes mean and inverse deviation from the operator's optional outputs, and recomputes them where an
// exporter left those out.
func layerNormVJP(c *call) []node {
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

// batchNormVJP is the inference form: a fixed mean and variance per channel.
func batchNormVJP(c *call) []node {
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

// standardised is (x - mean) / sqrt(variance + eps) over axes.
func standardised(x node, eps float64, axes []int) node {
	d := x.Sub(x.MeanKeep(axes...))
	return d.Div(d.Square().MeanKeep(axes...).Shift(eps).Sqrt())
}

// perChannel gives a vector of channels the rank of x.
func perChannel(v, x node) node {
	shape := []int{-1}
	for range x.Rank() - 2 {
		shape = append(shape, 1)
	}
	return v.Reshape(shape...)
}

func decomposeInstanceNorm(c *call, in []node) node {
	x := in[0]
	if x.Rank() < 3 {
		return c.Refuse("the rank of its input is not known or below 3")
	}
	y := standardised(x, float64(c.Op.Attrs.Float("epsilon", 1e-5)), axesFrom(2, x.Rank()))
	return y.Mul(perChannel(in[1], x)).Add(perChannel(in[2], x))
}

func decomposeRMSNorm(c *call, in []node) node {
	x := in[0]
	first, err := graph.Axis(c.Op.Attrs.Int("axis", -1), max(x.Rank(), 0))
	if err != nil {
		return c.Refuse("the rank of its input is not known, or %v", err)
	}
	rms := x.Square().MeanKeep(axesFrom(first, x.Rank())...).Shift(float64(c.Op.Attrs.Float("epsilon", 1e-5))).Sqrt()
	return x.Div(rms).Mul(in[1])
}

// decomposeSkipNorm is ONNX Runtime's LayerNormalization of a sum: input, skip, gamma, beta, bias.
func decomposeSkipNorm(c *call, in []node) node {
	x := in[0].Add(in[1])
	if len(in) > 4 && in[4].OK() {
		x = x.Add(in[4])
	}
	y := standardised(x, float64(c.Op.Attrs.Float("epsilon", 1e-12)), []int{-1}).Mul(in[2])
	if len(in) > 3 && in[3].OK() {
		y = y.Add(in[3])
	}
	return y
}

// decomposeLpNorm is 0 for a vector of zeros, as in the standard.
func decomposeLpNorm(c *call, in []node) node {
	axis, norm := c.Op.Attrs.Int("axis", -1), node{}
	switch p := c.Op.Attrs.Int("p", 2); p {
	case 1:
		norm = in[0].Abs().SumKeep(axis)
	case 2:
		norm = in[0].Square().SumKeep(axis).Sqrt()
	default:
		return c.Refuse("p = %d", p)
	}
	zero := norm.ScalarLike(0)
	return norm.Equal(zero).Where(zero, in[0].Div(norm.Equal(zero).Where(norm.ScalarLike(1), norm)))
}

func decomposeMeanVariance(c *call, in []node) node {
	axes, ok := c.Op.Attrs.Ints("axes")
	if !ok {
		axes = []int{0, 2, 3}
	}
	d := in[0].Sub(in[0].MeanKeep(axes...))
	return d.Div(d.Square().MeanKeep(axes...).Sqrt().Shift(1e-9))
}
