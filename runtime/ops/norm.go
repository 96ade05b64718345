package ops

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		def{Kind: "LayerNormalization", MinInputs: 2, MinRank: 1, Attrs: "axis int, epsilon float, stash_type int",
			Infer: inferLayerNorm, VJP: layerNormVJP},
		def{Kind: "BatchNormalization", MinInputs: 5, MinRank: 2, Infer: sameShape, VJP: batchNormVJP,
			Attrs: "epsilon float, momentum float, training_mode int"},
		def{Kind: "InstanceNormalization", MinInputs: 3, MinRank: 3, Attrs: "epsilon float", Infer: sameShape,
			Decompose: decomposeInstanceNorm},
		def{Kind: "RMSNormalization", MinInputs: 2, MinRank: 1, Since: 23, Infer: sameShape,
			Attrs: "axis int, epsilon float, stash_type int", Decompose: decomposeRMSNorm},
		def{Kind: "SimplifiedLayerNormalization", MinInputs: 2, MinRank: 1, Infer: sameShape,
			Attrs: "axis int, epsilon float, stash_type int", Decompose: decomposeRMSNorm},
		def{Domain: graph.Microsoft, Kind: "SkipLayerNormalization", MinInputs: 3, Attrs: "epsilon float",
			Infer: sameShape, Decompose: decomposeSkipNorm},
		decomposed("LpNormalization", "axis int, p int", decomposeLpNorm),
		decomposed("MeanVarianceNormalization", "axes ints", decomposeMeanVariance),
		def{Kind: "LRN", MinInputs: 1, Attrs: "alpha float, beta float, bias float, size int", Infer: sameShape},
	)
}

func inferLayerNorm(inference *infer) error {
	stat, a, err := axisOf(inference, -1, 0)
	if stat == nil {
		return err
	}

	for i := a; i < len(stat); i++ {
		stat[i] = graph.StaticDim(1)
	}

	for i := range inference.Out[1:] {
		inference.SetOutput(1+i, stat)
	}

	scale, known := inference.X(1).Shape().Ints()
	if normal, static := inference.X(0).Shape()[a:].Ints(); known && static && !slices.Equal(scale, normal) {
		return fmt.Errorf("its scale is %v and its normalised axes are %v: expand the scale, because ONNX Runtime's "+
			"CUDA provider reads beyond a smaller one", scale, normal)
	}

	return sameShape(inference)
}

// layerNormVJP uses mean and inverse deviation from the operator's optional outputs, and recomputes them if an exporter
// omitted them.
func layerNormVJP(c *call) []node {
	x, scale := c.X(0), c.X(1)
	first, err := graph.Axis(c.Attrs.Int("axis", -1), x.Rank())
	if err != nil {
		return c.Fail("%v", err)
	}

	if len(c.Out) > 1 && (c.DY[1].OK() || len(c.Out) > 2 && c.DY[2].OK()) || !c.G().OK() {
		return c.Fail("a gradient through its mean or deviation output is not supported")
	}

	if first == x.Rank()-1 && len(c.Out) == 3 && x.KernelRows() && !c.NeedsGrad(1) && !c.NeedsGrad(2) {
		return []node{kernel("LayerNormGrad", nil, x, scale, c.Out[1], c.Out[2], c.G()), {}, {}}
	}

	axes, rest := axesFrom(first, x.Rank()), axesFrom(0, first)
	var d, inv node
	if len(c.Out) == 3 {
		d, inv = x.Sub(c.Out[1]), c.Out[2]
	} else {
		d = x.Sub(x.MeanKeep(axes...))
		inv = d.Square().MeanKeep(axes...).AddScalar(c.Attrs.Float("epsilon", 1e-5)).Sqrt().Reciprocal()
	}

	return each(func(c *call) node {
		g := c.G().Mul(scale)
		along := g.Mul(d).MeanKeep(axes...).Mul(inv.Square())
		return g.Sub(g.MeanKeep(axes...)).Sub(d.Mul(along)).Mul(inv)
	}, func(c *call) node { return sumOver(c.G().Mul(d.Mul(inv)), rest) },
		func(c *call) node { return sumOver(c.G(), rest) })(c)
}

func sumOver(n node, axes []int) node {
	if len(axes) == 0 {
		return n
	}
	return n.Sum(axes...)
}

// batchNormVJP is the gradient at inference: mean and variance per channel are fixed.
func batchNormVJP(c *call) []node {
	x, g := c.X(0), c.G()
	if c.Attrs.Int("training_mode", 0) != 0 {
		return c.Fail("training mode is not supported")
	}

	inv := c.X(4).AddScalar(c.Attrs.Float("epsilon", 1e-5)).Sqrt().Reciprocal()
	others := append([]int{0}, axesFrom(2, x.Rank())...)
	return each(func(*call) node { return g.Mul(perChannel(c.X(1).Mul(inv), x)) }, func(*call) node {
		return g.Mul(x.Sub(perChannel(c.X(3), x)).Mul(perChannel(inv, x))).Sum(others...)
	}, func(*call) node { return g.Sum(others...) })(c)
}

// standardised returns (x - mean) / sqrt(variance + eps) over axes.
func standardised(x node, eps float64, axes []int) node {
	d := x.Sub(x.MeanKeep(axes...))
	return d.Div(d.Square().MeanKeep(axes...).AddScalar(eps).Sqrt())
}

func perChannel(v, x node) node {
	shape := []int{-1}
	for range x.Rank() - 2 {
		shape = append(shape, 1)
	}
	return v.Reshape(shape...)
}

func decomposeInstanceNorm(c *call, in []node) node {
	x := in[0]
	y := standardised(x, c.Attrs.Float("epsilon", 1e-5), axesFrom(2, x.Rank()))
	return y.Mul(perChannel(in[1], x)).Add(perChannel(in[2], x))
}

func decomposeRMSNorm(c *call, in []node) node {
	x := in[0]
	first, err := graph.Axis(c.Attrs.Int("axis", -1), x.Rank())
	if err != nil {
		return c.FailNode("%v", err)
	}
	rms := x.Square().MeanKeep(axesFrom(first, x.Rank())...).AddScalar(c.Attrs.Float("epsilon", 1e-5)).Sqrt()
	return x.Div(rms).Mul(in[1])
}

// decomposeSkipNorm returns ONNX Runtime's LayerNormalization of a sum: input, skip, gamma, beta, bias.
func decomposeSkipNorm(c *call, in []node) node {
	x := in[0].Add(in[1])
	if bias := optional(in, 4); bias.OK() {
		x = x.Add(bias)
	}

	y := standardised(x, c.Attrs.Float("epsilon", 1e-12), []int{-1}).Mul(in[2])
	if beta := optional(in, 3); beta.OK() {
		y = y.Add(beta)
	}

	return y
}

// decomposeLpNorm returns 0 for a vector of zeros, as in the standard.
func decomposeLpNorm(c *call, in []node) node {
	axis, norm := c.Attrs.Int("axis", -1), node{}
	switch p := c.Attrs.Int("p", 2); p {
	case 1:
		norm = in[0].Abs().SumKeep(axis)
	case 2:
		norm = in[0].Square().SumKeep(axis).Sqrt()
	default:
		return c.FailNode("p = %d", p)
	}

	zero := norm.ScalarLike(0)
	return norm.Equal(zero).Where(zero, in[0].Div(norm.Equal(zero).Where(norm.ScalarLike(1), norm)))
}

func decomposeMeanVariance(c *call, in []node) node {
	axes, ok := c.Attrs.Ints("axes")
	if !ok {
		axes = []int{0, 2, 3}
	}
	d := in[0].Sub(in[0].MeanKeep(axes...))
	return d.Div(d.Square().MeanKeep(axes...).Sqrt().AddScalar(1e-9))
}
