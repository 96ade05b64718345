package grad

import (
	"slices"

	"promptfed/runtime/graph"
)

// ruleConv gives the gradient of the data by a transposed convolution with the same weights.
func ruleConv(c *Call) []node {
	x, w, g := c.X(0), c.X(1), c.G()
	if x.Rank() < 3 {
		return c.Fail("the rank of its input is not known")
	}
	k, p, s, d, err := c.Op.Window()
	if err != nil {
		return c.Fail("%v", err)
	}
	group := c.Op.Attrs.Int("group", 1)
	out := make([]node, len(c.Op.In))
	if c.Need(0) {
		out[0] = transposed(x, g, w, group, k, p, s, d)
	}
	if c.Need(1) {
		if out[1], err = kernelGrad(x, g, group, k, p, s, d); err != nil {
			return c.Fail("%v", err)
		}
	}
	if c.Need(2) {
		out[2] = g.Sum(exceptChannels(g.Rank())...)
	}
	return out
}

// transposed is the gradient of a convolution of x from that of its result: a transposed convolution of the size of x.
// Where the last elements of x were in no window (a stride that does not divide), they get zeros.
func transposed(x, g, w node, group int, k, p, s, d []int) node {
	n := len(k)
	rest, fixed := make([]int, n), true
	for i := range k {
		in := x.Shape()[2+i]
		if s[i] == 1 {
			continue
		}
		fixed = fixed && in.Static()
		rest[i] = (in.N + p[i] + p[i+n] - d[i]*(k[i]-1) - 1) % s[i]
	}
	at := graph.Attrs{"pads": p, "strides": s, "dilations": d, "kernel_shape": k, "group": group}
	if fixed {
		at["output_padding"] = rest
		return x.Graph().Apply(graph.Standard, "ConvTranspose", at, g, w)
	}
	at["pads"] = append(slices.Clone(p[:n]), make([]int, n)...)
	full := x.Graph().Apply(graph.Standard, "ConvTranspose", at, g, w)
	none := x.Graph().Ints(make([]int, n+2)...)
	return x.Graph().Apply(graph.Standard, "Pad", nil, full, graph.Concat(0, none, x.ShapeOf().Sub(full.ShapeOf())))
}

// kernelGrad is the gradient of the weights [M, C/group, k...] of a convolution of big [N,C,...] from that of its
// result, small [N,M,...]: the convolution of one with the other, the batch taking the channels' place and stride and
// dilation swapped. For a transposed convolution big and small change places.
func kernelGrad(big, small node, group int, k, p, s, d []int) (node, error) {
	swap := swap01(big.Rank())
	t, g := big.Transpose(swap...), small.Transpose(swap...)
	if group > 1 { // [C,N,...] to [C/group, group*N, ...]
		var sizes []node
		for i := range k {
			sizes = append(sizes, sizeOf(big, 2+i))
		}
		gr := big.Graph()
		split := reshape(t, vector(append([]node{gr.Ints(group, -1), sizeOf(big, 0)}, sizes...)...))
		t = reshape(split.Transpose(swap01(split.Rank())...), vector(append([]node{sizeOf(split, 1), gr.Ints(-1)},
			sizes...)...))
	}
	dw := big.Graph().Apply(graph.Standard, "Conv", graph.Attrs{"pads": p, "strides": d, "dilations": s,
		"group": group}, t, g)
	dw = dw.Transpose(swap...)
	for i := range k {
		dw = dw.Slice(2+i, 0, k[i])
	}
	return dw, dw.Graph().Err()
}

func swap01(rank int) []int {
	p := make([]int, rank)
	for i := range p {
		p[i] = i
	}
	p[0], p[1] = 1, 0
	return p
}

func exceptChannels(rank int) []int {
	axes := []int{0}
	for i := 2; i < rank; i++ {
		axes = append(axes, i)
	}
	return axes
}

// ruleConvTranspose gives the gradient of the data by a convolution with the same weights.
func ruleConvTranspose(c *Call) []node {
	x, w, g := c.X(0), c.X(1), c.G()
	if x.Rank() < 3 {
		return c.Fail("the rank of its input is not known")
	}
	k, p, s, d, err := c.Op.Window()
	if err != nil {
		return c.Fail("%v", err)
	}
	if _, given := c.Op.Attrs.Ints("output_shape"); given {
		return c.Fail("attribute output_shape is not supported")
	}
	group := c.Op.Attrs.Int("group", 1)
	out := make([]node, len(c.Op.In))
	if c.Need(0) {
		out[0] = g.Graph().Apply(graph.Standard, "Conv", graph.Attrs{"pads": p, "strides": s, "dilations": d,
			"kernel_shape": k, "group": group}, g, w)
	}
	if c.Need(1) {
		if out[1], err = kernelGrad(g, x, group, k, p, s, d); err != nil {
			return c.Fail("%v", err)
		}
	}
	if c.Need(2) {
		out[2] = g.Sum(exceptChannels(g.Rank())...)
	}
	return out
}

// ruleAveragePool gives each input its share of the windows it is in: by nearest-neighbour scaling where windows tile
// the input, else by a transposed convolution, channel by channel.
func ruleAveragePool(c *Call) []node {
	x, g := c.X(0), c.G()
	if x.Rank() < 3 {
		return c.Fail("the rank of its input is not known")
	}
	k, p, s, d, err := c.Op.Window()
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
		up := gr.Apply(graph.Standard, "Resize", graph.Attrs{"mode": "nearest", "nearest_mode": "floor",
			"coordinate_transformation_mode": "asymmetric"}, g, node{}, gr.Const(floats(scales)))
		return only(up.Scale(share).ReshapeLike(x))
	}
	channels := x.Shape()[1]
	if !channels.Static() {
		return c.Fail("the number of channels must be known when the graph is built")
	}
	if slices.Max(p) > 0 && c.Op.Attrs.Int("count_include_pad", 0) == 0 || c.Op.Attrs.Int("ceil_mode", 0) != 0 {
		return unevenPool(c, channels.N, k, p, s, d)
	}
	w := x.ScalarLike(share).Expand(append([]int{channels.N, 1}, k...)...)
	return only(transposed(x, g, w, channels.N, k, p, s, d))
}

// unevenPool is the gradient of an average over windows that do not all count the same number of elements: what the
// operator makes of ones, divided by how many elements of the input each window holds, is one over that number.
func unevenPool(c *Call, channels int, k, p, s, d []int) []node {
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
	held := gr.Apply(graph.Standard, "Conv", graph.Attrs{"pads": p, "strides": s, "dilations": d, "kernel_shape": k},
		ones, one)
	share := gr.Apply(graph.Standard, "AveragePool", c.Op.Attrs, ones).Div(held)
	w := x.ScalarLike(1).Expand(append([]int{channels, 1}, k...)...)
	return only(transposed(x, c.G().Mul(share), w, channels, k, p, s, d))
}

func ruleGlobalAveragePool(c *Call) []node {
	return only(expandLike(c.G().Div(count(c.X(0), c.G())), c.X(0)))
}

// ruleMaxPool scatters the gradient to the positions that MaxPool's second output names; of equal elements the first
// one in a window gets it all.
func ruleMaxPool(c *Call) []node {
	x, g := c.X(0), c.G()
	if c.Op.Attrs.Int("storage_order", 0) != 0 {
		return c.Fail("storage_order is not supported")
	}
	if len(c.Op.Out) > 1 && c.DY[1].OK() {
		return c.Fail("a gradient through its indices is not defined")
	}
	gr := x.Graph()
	index := gr.ApplyN(graph.Standard, "MaxPool", c.Op.Attrs, 2, x)[1].Reshape(-1)
	flat := gr.Apply(graph.Standard, "ScatterElements", graph.Attrs{"axis": 0, "reduction": "add"},
		zerosLike(x).Reshape(-1), index, g.Reshape(-1))
	return only(flat.ReshapeLike(x))
}
