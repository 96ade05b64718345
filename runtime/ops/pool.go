package ops

import (
	"slices"

	"promptfed/runtime/graph"
)

func init() {
	const attrs = windowAttrs + ", ceil_mode int"
	graph.Register(
		graph.Def{Kind: "AveragePool", MinInputs: 1, Attrs: attrs + ", count_include_pad int", Infer: inferPool,
			VJP: averagePoolVJP},
		graph.Def{Kind: "MaxPool", MinInputs: 1, Attrs: attrs + ", storage_order int", Infer: inferPool, VJP: maxPoolVJP,
			NonSmooth: true},
		graph.Def{Kind: "LpPool", MinInputs: 1, Attrs: attrs + ", p int", Infer: inferPool, Decompose: decomposeLpPool},
		graph.Def{Kind: "GlobalAveragePool", MinInputs: 1, Infer: inferGlobalPool, VJP: globalAveragePoolVJP},
		graph.Def{Kind: "GlobalMaxPool", MinInputs: 1, Infer: inferGlobalPool, Decompose: decomposeGlobalMaxPool,
			NonSmooth: true},
		graph.Def{Kind: "GlobalLpPool", MinInputs: 1, Attrs: "p int", Infer: inferGlobalPool},
	)
}

func inferPool(o *infer) error {
	x := o.In[0].Shape()
	if len(x) < 3 {
		return nil
	}
	return windowShape(o, x, x[1])
}

// averagePoolVJP gives each input its share of the windows it is in: by nearest-neighbour scaling where windows tile
// the input, else by a transposed convolution, channel by channel.
func averagePoolVJP(c *call) []node {
	x, g := c.X(0), c.G()
	if x.Rank() < 3 {
		return c.Fail("the rank of its input is not known")
	}
	k, p, s, d, err := window(c.Op)
	if err != nil {
		return c.Fail("%v", err)
	}
	plain := slices.Max(p) == 0 && slices.Max(d) == 1
	tiles, share := plain && slices.Equal(k, s), 1.0
	for i := range k {
		tiles = tiles && x.Shape()[2+i].Static() && x.Shape()[2+i].N%k[i] == 0
		share /= float64(k[i])
	}
	gr := x.Graph()
	if tiles {
		scales := []float32{1, 1}
		for _, v := range k {
			scales = append(scales, float32(v))
		}
		up := gr.Apply(graph.Standard, "Resize", graph.Attrs{"mode": graph.Attr("nearest"), "nearest_mode": graph.Attr("floor"),
			"coordinate_transformation_mode": graph.Attr("asymmetric")}, g, node{}, gr.Const(floats(scales)))
		return []node{up.Scale(share).ReshapeLike(x)}
	}
	channels := x.Shape()[1]
	if !channels.Static() {
		return c.Fail("the number of channels must be known when the graph is built")
	}
	if slices.Max(p) > 0 && c.Op.Attrs.Int("count_include_pad", 0) == 0 || c.Op.Attrs.Int("ceil_mode", 0) != 0 {
		return unevenPoolVJP(c, channels.N, k, p, s, d)
	}
	w := x.ScalarLike(share).Expand(append([]int{channels.N, 1}, k...)...)
	return []node{transposed(x, g, w, channels.N, k, p, s, d)}
}

// unevenPoolVJP is the gradient of an average over windows that do not all count the same number of elements: what the
// operator makes of ones, divided by how many elements of the input each window holds, is one over that number.
func unevenPoolVJP(c *call, channels int, k, p, s, d []int) []node {
	x, gr := c.X(0), c.X(0).Graph()
	p = slices.Clone(p)
	space, ok1 := x.Shape()[2:].Ints()
	windows, ok2 := c.Y().Shape()[2:].Ints()
	if !ok1 || !ok2 {
		return c.Fail("with ceil_mode, or pads that do not count, the size of its input must be known when the graph " +
			"is built")
	}
	for i := range k { // windows that start inside may end behind the padding
		p[i+len(k)] = max(p[i+len(k)], (windows[i]-1)*s[i]+d[i]*(k[i]-1)+1-space[i]-p[i])
	}
	ones := x.ScalarLike(1).Expand(append([]int{1, 1}, space...)...)
	one := x.ScalarLike(1).Expand(append([]int{1, 1}, k...)...)
	held := gr.Apply(graph.Standard, "Conv", graph.Attrs{"pads": graph.Attr(p), "strides": graph.Attr(s), "dilations": graph.Attr(d), "kernel_shape": graph.Attr(k)},
		ones, one)
	share := gr.Apply(graph.Standard, "AveragePool", c.Op.Attrs, ones).Div(held)
	w := x.ScalarLike(1).Expand(append([]int{channels, 1}, k...)...)
	return []node{transposed(x, c.G().Mul(share), w, channels, k, p, s, d)}
}

// maxPoolVJP scatters the gradient to the positions that MaxPool's second output names; of equal elements the first
// one in a window gets it all.
func maxPoolVJP(c *call) []node {
	x, g := c.X(0), c.G()
	if c.Op.Attrs.Int("storage_order", 0) != 0 {
		return c.Fail("storage_order is not supported")
	}
	if len(c.Op.Out) > 1 && c.DY[1].OK() {
		return c.Fail("a gradient through its indices is not defined")
	}
	gr := x.Graph()
	index := gr.ApplyN(graph.Standard, "MaxPool", c.Op.Attrs, 2, x)[1].Reshape(-1)
	return []node{addAt(ZerosLike(x).Reshape(-1), 0, index, g.Reshape(-1)).ReshapeLike(x)}
}

// decomposeLpPool is (sum |x|^p)^(1/p) over windows; padding counts as zeros.
func decomposeLpPool(c *call, in []node) node {
	p := float64(c.Op.Attrs.Int("p", 2))
	at, size := graph.Attrs{"count_include_pad": graph.Attr(1)}, 1
	for _, name := range []string{"kernel_shape", "strides", "pads", "dilations"} {
		if v, ok := c.Op.Attrs.Ints(name); ok {
			at[name] = graph.Attr(v)
		}
	}
	if c.Op.Attrs.Int("ceil_mode", 0) != 0 || c.Op.Attrs.Str("auto_pad", "NOTSET") != "NOTSET" {
		return c.Refuse("ceil_mode and auto_pad are not supported")
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

func inferGlobalPool(o *infer) error {
	x := o.In[0].Shape()
	if x == nil {
		return nil
	}
	out := slices.Clone(x)
	for i := 2; i < len(out); i++ {
		out[i] = graph.D(1)
	}
	return o.Set(out)
}

func globalAveragePoolVJP(c *call) []node {
	return []node{expandLike(c.G().Div(count(c.X(0), c.G())), c.X(0))}
}

func decomposeGlobalMaxPool(c *call, in []node) node {
	if in[0].Rank() < 3 {
		return c.Refuse("the rank of its input is not known")
	}
	return in[0].Graph().Apply(graph.Standard, "ReduceMax", graph.Attrs{"keepdims": graph.Attr(1)}, in[0],
		in[0].Graph().Ints(axesFrom(2, in[0].Rank())...))
}
