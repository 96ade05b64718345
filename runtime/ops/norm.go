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
			Infer: inferSkipNorm, Decompose: decomposeSkipNorm, AllOutputs: true},
		decomposed("LpNormalization", "axis int, p int", decomposeLpNorm),
		decomposed("MeanVarianceNormalization", "axes ints", decomposeMeanVariance),
		def{Kind: "LRN", MinInputs: 1, Attrs: "alpha float, beta float, bias float, size int", Infer: sameShape},
	)
}

func inferLayerNorm(inference *infer) error {
	stat, axis, err := axisOf(inference, -1, 0)
	if stat == nil {
		return err
	}

	for i := axis; i < len(stat); i++ {
		stat[i] = graph.StaticDim(1)
	}

	for i := range inference.Out[1:] {
		inference.SetOutput(1+i, stat)
	}

	scale, known := inference.X(1).Shape().Ints()
	if normal, static := inference.X(0).Shape()[axis:].Ints(); known && static && !slices.Equal(scale, normal) {
		return fmt.Errorf("its scale is %v and its normalised axes are %v: expand the scale, because ONNX Runtime's "+
			"CUDA provider reads beyond a smaller one", scale, normal)
	}

	return sameShape(inference)
}

// layerNormVJP uses mean and inverse deviation from the operator's optional outputs, and recomputes them if an exporter
// omitted them.
func layerNormVJP(backward *call) []node {
	x, scale := backward.X(0), backward.X(1)
	first, err := graph.Axis(backward.Attrs.Int("axis", -1), x.Rank())
	if err != nil {
		return backward.Fail("%v", err)
	}

	if first == x.Rank()-1 && len(backward.Out) == 3 && x.KernelRows() && !backward.NeedsGrad(1) &&
		!backward.NeedsGrad(2) {
		return []node{kernel("LayerNormGrad", nil, x, scale, backward.Out[1], backward.Out[2], backward.G()), {}, {}}
	}

	axes, rest := axesFrom(first, x.Rank()), axesFrom(0, first)
	var centred, inv node
	if len(backward.Out) == 3 {
		centred, inv = x.Sub(backward.Out[1]), backward.Out[2]
	} else {
		centred = x.Sub(x.MeanKeep(axes...))
		inv = centred.Square().MeanKeep(axes...).AddScalar(backward.Attrs.Float("epsilon", 1e-5)).Sqrt().Reciprocal()
	}

	return each(func(c *call) node {
		g := c.G().Mul(scale)
		along := g.Mul(centred).MeanKeep(axes...).Mul(inv.Square())
		return g.Sub(g.MeanKeep(axes...)).Sub(centred.Mul(along)).Mul(inv)
	}, func(c *call) node { return sumOver(c.G().Mul(centred.Mul(inv)), rest) },
		func(c *call) node { return sumOver(c.G(), rest) })(backward)
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
	return v.Reshape(append([]int{-1}, slices.Repeat([]int{1}, x.Rank()-2)...)...)
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

// skipNormSum is the output of SkipLayerNormalization that holds the sum.
const skipNormSum = 3

func inferSkipNorm(o *infer) error {
	if len(o.Out) > skipNormSum {
		o.SetOutput(skipNormSum, o.In[0].Shape())
	}
	return sameShape(o)
}

// decomposeSkipNorm returns ONNX Runtime's LayerNormalization of a sum: input, skip, gamma, beta, bias.
func decomposeSkipNorm(c *call, in []node) node {
	x := in[0].Add(in[1])
	if bias := optional(in, 4); bias.OK() {
		x = x.Add(bias)
	}

	c.Others = []node{skipNormSum - 1: x}
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
