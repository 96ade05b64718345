package ops

import (
	"slices"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
)

func init() {
	const attrs = windowAttrs + ", ceil_mode int"
	graph.Register(
		def{Kind: "AveragePool", MinInputs: 1, MinRank: 3, Attrs: attrs + ", count_include_pad int", Infer: inferPool,
			VJP: averagePoolVJP},
		def{Kind: "MaxPool", MinInputs: 1, Attrs: attrs + ", storage_order int", Infer: inferMaxPool, VJP: maxPoolVJP,
			NonSmooth: true},
		def{Kind: "LpPool", MinInputs: 1, Attrs: attrs + ", p int", Infer: inferPool, Decompose: decomposeLpPool},
		def{Kind: "GlobalAveragePool", MinInputs: 1, Infer: inferGlobalPool, VJP: each(func(c *call) node {
			return expandLike(c.G().Div(count(c.X(0), c.G())), c.X(0))
		})},
		def{Kind: "GlobalMaxPool", MinInputs: 1, MinRank: 3, Infer: inferGlobalPool, NonSmooth: true,
			Decompose: func(_ *call, in []node) node {
				space := in[0].Graph().Ints(axesFrom(2, in[0].Rank())...)
				return apply("ReduceMax", graph.Attrs{"keepdims": graph.Attr(1)}, in[0], space)
			}},
		def{Kind: "GlobalLpPool", MinInputs: 1, Attrs: "p int", Infer: inferGlobalPool},
	)
}

func inferPool(o *infer) error {
	x := o.In[0].Shape()
	if len(x) < 3 {
		return nil
	}
	return windowShape(o, x, x[1])
}

func inferMaxPool(o *infer) error {
	err := inferPool(o)
	for i := range o.Out[1:] { // positions
		o.SetType(1+i, graph.Int64)
		o.SetOutput(1+i, o.Out[0].Shape())
	}
	return err
}

// averagePoolVJP adds to each input its share of the gradients of its windows: by nearest-neighbour scaling if the
// windows tile the input, otherwise by a transposed convolution, channel by channel.
func averagePoolVJP(backward *call) []node {
	x, gradient := backward.X(0), backward.G()
	geometry, err := windows(backward.Op)
	if err != nil {
		return backward.Fail("%v", err)
	}

	plain := slices.Max(geometry.pads) == 0 && slices.Max(geometry.dilations) == 1
	tiles, share := plain && slices.Equal(geometry.kernel, geometry.strides), 1.0
	for i, k := range geometry.kernel {
		tiles = tiles && x.Shape()[2+i].Static() && x.Shape()[2+i].N%k == 0
		share /= float64(k)
	}

	gr := x.Graph()
	if tiles {
		scales := append([]float32{1, 1}, convert.Slice(geometry.kernel, func(v int) float32 { return float32(v) })...)
		up := apply("Resize", graph.Attrs{"mode": graph.Attr("nearest"), "nearest_mode": graph.Attr("floor"),
			"coordinate_transformation_mode": graph.Attr("asymmetric")}, gradient, node{}, gr.Const(floats(scales)))
		return []node{up.MulScalar(share).ReshapeLike(x)}
	}

	channels := x.Shape()[1]
	if !channels.Static() {
		return backward.Fail("the number of channels must be known when the graph is built")
	}

	if slices.Max(geometry.pads) > 0 && backward.Attrs.Int("count_include_pad", 0) == 0 ||
		backward.Attrs.Int("ceil_mode", 0) != 0 {
		return unevenPoolVJP(backward, channels.N, geometry)
	}

	weights := x.ScalarLike(share).Expand(append([]int{channels.N, 1}, geometry.kernel...)...)
	return []node{transposed(x, gradient, weights, channels.N, geometry)}
}

// unevenPoolVJP is the gradient of an average over windows with different numbers of elements. The operator applied to
// ones, divided by the number of input elements in each window, is the inverse of the number that it divides by.
func unevenPoolVJP(backward *call, channels int, window geometry) []node {
	x := backward.X(0)
	space, ok1 := x.Shape()[2:].Ints()
	counts, ok2 := backward.Y().Shape()[2:].Ints()
	if !ok1 || !ok2 {
		return backward.Fail("with ceil_mode, or pads that do not count, the size of its input must be known " +
			"when the graph is built")
	}

	ends := window
	ends.pads = slices.Clone(window.pads)
	for i, stride := range window.strides { // windows that start inside may end beyond the padding
		end := &ends.pads[i+len(window.kernel)]
		*end = max(*end, (counts[i]-1)*stride+window.span(i)-space[i]-window.pads[i])
	}

	ones := x.ScalarLike(1).Expand(append([]int{1, 1}, space...)...)
	one := x.ScalarLike(1).Expand(append([]int{1, 1}, window.kernel...)...)
	held := apply("Conv", ends.attrs(), ones, one)
	share := apply("AveragePool", backward.Attrs, ones).Div(held)
	weights := x.ScalarLike(1).Expand(append([]int{channels, 1}, window.kernel...)...)
	return []node{transposed(x, backward.G().Mul(share), weights, channels, ends)}
}

// maxPoolVJP scatters the gradient to the positions in MaxPool's second output. Of equal elements in a window, the
// first gets the whole gradient.
func maxPoolVJP(backward *call) []node {
	x, gradient := backward.X(0), backward.G()
	if backward.Attrs.Int("storage_order", 0) != 0 {
		return backward.Fail("storage_order is not supported")
	}

	gr := x.Graph()
	index := gr.ApplyN(graph.Standard, "MaxPool", backward.Attrs, 2, x)[1].Reshape(-1)
	return []node{addAt(ZerosLike(x).Reshape(-1), 0, index, gradient.Reshape(-1)).ReshapeLike(x)}
}

// decomposeLpPool returns (sum |x|^p)^(1/p) over windows; padding counts as zeros.
func decomposeLpPool(backward *call, in []node) node {
	p := float64(backward.Attrs.Int("p", 2))
	at, size := graph.Attrs{"count_include_pad": graph.Attr(1)}, 1
	for _, name := range []string{"kernel_shape", "strides", "pads", "dilations"} {
		if v, ok := backward.Attrs.Ints(name); ok {
			at[name] = graph.Attr(v)
		}
	}

	if backward.Attrs.Int("ceil_mode", 0) != 0 || backward.Attrs.Str("auto_pad", "NOTSET") != "NOTSET" {
		return backward.FailNode("ceil_mode and auto_pad are not supported")
	}

	if k, ok := backward.Attrs.Ints("kernel_shape"); ok {
		for _, v := range k {
			size *= v
		}
	}

	power := func(x node, p float64) node { return apply("Pow", nil, x, x.ScalarLike(p)) }
	mean := apply("AveragePool", at, power(in[0].Abs(), p))
	return power(mean.MulScalar(float64(size)), 1/p)
}

var inferGlobalPool = ranked(func(o *infer, out graph.Shape) error {
	for i := 2; i < len(out); i++ {
		out[i] = graph.StaticDim(1)
	}
	return o.Set(out)
})
