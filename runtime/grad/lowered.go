package grad

import (
	"math"

	"promptfed/runtime/graph"
)

// lowered makes the rule of an operator that other operators can express: build writes it out, from inputs cut off from
// what made them, and the walk differentiates that. The operator's own forward computation stays as it is.
func lowered(build func(c *Call, in []node) node) Rule {
	return func(c *Call) []node {
		if !c.G().OK() {
			return c.Fail("only the gradient of its first output is supported")
		}
		in, wrt, at := make([]node, len(c.Op.In)), []node(nil), []int(nil)
		for i, x := range c.Op.In {
			if !x.OK() {
				continue
			}
			in[i] = x
			if c.Need(i) { // each under another attribute, as two inputs may be one node
				in[i] = x.Graph().Apply(graph.Own, "StopGradient", graph.Attrs{"input": i}, x)
				wrt, at = append(wrt, in[i]), append(at, i)
			}
		}
		y := build(c, in)
		if c.err != nil {
			return nil
		}
		if err := y.Graph().Err(); err != nil {
			return c.Fail("written out: %v", err)
		}
		dx, err := VJP([]node{y}, []node{c.G()}, wrt...)
		if err != nil {
			return c.Fail("written out: %v", err)
		}
		out := make([]node, len(c.Op.In))
		for i, d := range dx {
			out[at[i]] = d
		}
		return out
	}
}

// refuse is Fail for a build function.
func (c *Call) refuse(format string, a ...any) node {
	c.Fail(format, a...)
	return node{}
}

func axesFrom(first, rank int) []int {
	var out []int
	for i := first; i < rank; i++ {
		out = append(out, i)
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

func writeInstanceNorm(c *Call, in []node) node {
	x := in[0]
	if x.Rank() < 3 {
		return c.refuse("the rank of its input is not known or below 3")
	}
	y := standardised(x, float64(c.Op.Attrs.Float("epsilon", 1e-5)), axesFrom(2, x.Rank()))
	return y.Mul(perChannel(in[1], x)).Add(perChannel(in[2], x))
}

// writeGroupNorm takes scale and bias per channel (operator set 21) or per group (18).
func writeGroupNorm(c *Call, in []node) node {
	x, groups := in[0], c.Op.Attrs.Int("num_groups", 0)
	if x.Rank() < 3 || groups < 1 || !x.Shape()[1].Static() || in[1].Rank() != 1 || !in[1].Shape()[0].Static() {
		return c.refuse("rank, channels and groups must be known when the graph is built")
	}
	y := standardised(reshape(x, vector(sizeOf(x, 0), x.Graph().Ints(groups, -1))), float64(c.Op.Attrs.Float("epsilon",
		1e-5)), []int{2}).ReshapeLike(x)
	wide := func(v node) node {
		each := x.Shape()[1].N / v.Shape()[0].N
		if each > 1 {
			v = v.Unsqueeze(1).Expand(v.Shape()[0].N, each).Reshape(-1)
		}
		return perChannel(v, x)
	}
	return y.Mul(wide(in[1])).Add(wide(in[2]))
}

func writeRMSNorm(c *Call, in []node) node {
	x := in[0]
	first, err := graph.Axis(c.Op.Attrs.Int("axis", -1), max(x.Rank(), 0))
	if err != nil {
		return c.refuse("the rank of its input is not known, or %v", err)
	}
	rms := x.Square().MeanKeep(axesFrom(first, x.Rank())...).Shift(float64(c.Op.Attrs.Float("epsilon", 1e-5))).Sqrt()
	return x.Div(rms).Mul(in[1])
}

// writeSkipNorm is ONNX Runtime's LayerNormalization of a sum: input, skip, gamma, beta, bias.
func writeSkipNorm(c *Call, in []node) node {
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

// writeLpNorm is 0 for a vector of zeros, as in the standard.
func writeLpNorm(c *Call, in []node) node {
	axis, norm := c.Op.Attrs.Int("axis", -1), node{}
	switch p := c.Op.Attrs.Int("p", 2); p {
	case 1:
		norm = in[0].Abs().SumKeep(axis)
	case 2:
		norm = in[0].Square().SumKeep(axis).Sqrt()
	default:
		return c.refuse("p = %d", p)
	}
	zero := norm.ScalarLike(0)
	return norm.Equal(zero).Where(zero, in[0].Div(norm.Equal(zero).Where(norm.ScalarLike(1), norm)))
}

func writeMeanVariance(c *Call, in []node) node {
	axes, ok := c.Op.Attrs.Ints("axes")
	if !ok {
		axes = []int{0, 2, 3}
	}
	d := in[0].Sub(in[0].MeanKeep(axes...))
	return d.Div(d.Square().MeanKeep(axes...).Sqrt().Shift(1e-9))
}

// writeLpPool is (sum |x|^p)^(1/p) over windows; padding counts as zeros.
func writeLpPool(c *Call, in []node) node {
	p := float64(c.Op.Attrs.Int("p", 2))
	at, size := graph.Attrs{"count_include_pad": 1}, 1
	for _, name := range []string{"kernel_shape", "strides", "pads", "dilations"} {
		if v, ok := c.Op.Attrs.Ints(name); ok {
			at[name] = v
		}
	}
	if c.Op.Attrs.Int("ceil_mode", 0) != 0 || c.Op.Attrs.Str("auto_pad", "NOTSET") != "NOTSET" {
		return c.refuse("ceil_mode and auto_pad are not supported")
	}
	if k, ok := c.Op.Attrs.Ints("kernel_shape"); ok {
		for _, v := range k {
			size *= v
		}
	}
	g := in[0].Graph()
	power := func(x node, p float64) node { return g.Apply(graph.Standard, "Pow", nil, x, x.ScalarLike(p)) }
	mean := g.Apply(graph.Standard, "AveragePool", at, power(in[0].Abs(), p))
	return power(mean.Scale(float64(size)), 1/p)
}

func writeGlobalMaxPool(c *Call, in []node) node {
	if in[0].Rank() < 3 {
		return c.refuse("the rank of its input is not known")
	}
	return in[0].Graph().Apply(graph.Standard, "ReduceMax", graph.Attrs{"keepdims": 1}, in[0],
		in[0].Graph().Ints(axesFrom(2, in[0].Rank())...))
}

// writeSwish is x sigmoid(alpha x) [Ramachandran et al. 2017].
func writeSwish(c *Call, in []node) node {
	return in[0].Mul(in[0].Scale(float64(c.Op.Attrs.Float("alpha", 1))).Sigmoid())
}

// writeMish is x tanh(softplus(x)) [Misra 2019].
func writeMish(_ *Call, in []node) node { return in[0].Mul(in[0].Softplus().Tanh()) }

func writeSoftsign(_ *Call, in []node) node { return in[0].Div(in[0].Abs().Shift(1)) }

// writeCelu is max(0,x) + min(0, alpha (e^(x/alpha) - 1)) [Barron 2017].
func writeCelu(c *Call, in []node) node {
	a := float64(c.Op.Attrs.Float("alpha", 1))
	zero := in[0].ScalarLike(0)
	return in[0].ReLU().Add(in[0].Min(zero).Scale(1 / a).Exp().Shift(-1).Scale(a))
}

// writeSelu is gamma (max(0,x) + alpha (e^min(0,x) - 1)) [Klambauer et al. 2017].
func writeSelu(c *Call, in []node) node {
	a, g := float64(c.Op.Attrs.Float("alpha", 1.67326319217681884765625)), float64(c.Op.Attrs.Float("gamma",
		1.05070102214813232421875))
	return in[0].ReLU().Add(in[0].Min(in[0].ScalarLike(0)).Exp().Shift(-1).Scale(a)).Scale(g)
}

// writeFastGelu is ONNX Runtime's tanh form, of the sum of input and bias.
func writeFastGelu(_ *Call, in []node) node {
	x := in[0]
	if len(in) > 1 && in[1].OK() {
		x = x.Add(in[1])
	}
	inner := x.Square().Scale(0.044715).Shift(1).Mul(x).Scale(math.Sqrt(2 / math.Pi))
	return x.Scale(0.5).Mul(inner.Tanh().Shift(1))
}

// writeBiasGelu is ONNX Runtime's Gelu of a sum.
func writeBiasGelu(_ *Call, in []node) node {
	x := in[0].Add(in[1])
	return x.Scale(0.5).Mul(x.Scale(math.Sqrt2 / 2).Erf().Shift(1))
}

// writeDepthToSpace moves blocks of channels into space; modes DCR and CRD say which axis of the channels is the
// block's.
func writeDepthToSpace(c *Call, in []node) node {
	b := c.Op.Attrs.Int("blocksize", 0)
	s, ok := channelsAndSpace(in[0], b)
	if !ok || s[0]%(b*b) != 0 {
		return c.refuse("channels and size of its input must be known when the graph is built")
	}
	if c.Op.Attrs.Str("mode", "DCR") == "CRD" {
		return in[0].Reshape(-1, s[0]/(b*b), b, b, s[1], s[2]).Transpose(0, 1, 4, 2, 5, 3).Reshape(-1, s[0]/(b*b),
			s[1]*b, s[2]*b)
	}
	return in[0].Reshape(-1, b, b, s[0]/(b*b), s[1], s[2]).Transpose(0, 3, 4, 1, 5, 2).Reshape(-1, s[0]/(b*b), s[1]*b,
		s[2]*b)
}

func writeSpaceToDepth(c *Call, in []node) node {
	b := c.Op.Attrs.Int("blocksize", 0)
	s, ok := channelsAndSpace(in[0], b)
	if !ok || s[1]%b != 0 || s[2]%b != 0 {
		return c.refuse("channels and size of its input must be known when the graph is built")
	}
	return in[0].Reshape(-1, s[0], s[1]/b, b, s[2]/b, b).Transpose(0, 3, 5, 1, 2, 4).Reshape(-1, s[0]*b*b, s[1]/b,
		s[2]/b)
}

func channelsAndSpace(x node, block int) ([]int, bool) {
	if x.Rank() != 4 || block < 1 {
		return nil, false
	}
	return x.Shape()[1:].Ints()
}
