package ops

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
)

// windowAttrs are of convolutions and pooling.
const windowAttrs = "auto_pad string, kernel_shape ints, pads ints, strides ints, dilations ints"

func init() {
	graph.Register(
		graph.Def{Kind: "Conv", MinInputs: 2, Attrs: windowAttrs + ", group int", Infer: inferConv, VJP: convVJP},
		graph.Def{Kind: "ConvTranspose", MinInputs: 2, Infer: inferConvTranspose, VJP: convTransposeVJP,
			Attrs: windowAttrs + ", group int, output_padding ints, output_shape ints"},
	)
}

// maxWindow bounds kernels, strides and dilations.
const maxWindow = 1 << 20

func spatial(o *graph.Op, kernel []int) (pads, strides, dilations []int) {
	n := len(kernel)
	get := func(name string, v, count int) []int {
		if a, ok := o.Attrs.Ints(name); ok && len(a) == count {
			return a
		}
		return slices.Repeat([]int{v}, count)
	}
	return get("pads", 0, 2*n), get("strides", 1, n), get("dilations", 1, n)
}

// window gives kernel size, pads, strides and dilations of a convolution or pooling operator with a known kernel.
func window(o *graph.Op) (kernel, pads, strides, dilations []int, err error) {
	kernel, ok := o.Attrs.Ints("kernel_shape")
	if !ok {
		if w := o.X(1); w.OK() && len(w.Shape()) > 2 {
			if kernel, ok = w.Shape()[2:].Ints(); !ok {
				return nil, nil, nil, nil, fmt.Errorf("the kernel size is not known")
			}
		}
	}
	if n := o.In[0].Rank(); n >= 0 && len(kernel) != n-2 {
		return nil, nil, nil, nil, fmt.Errorf("a kernel of %v for an input of rank %d", kernel, n)
	}
	pads, strides, dilations = spatial(o, kernel)
	for _, v := range slices.Concat(kernel, strides, dilations) {
		if v < 1 || v > maxWindow {
			return nil, nil, nil, nil, fmt.Errorf("kernel %v, strides %v and dilations %v must be from 1 to %d", kernel,
				strides, dilations, maxWindow)
		}
	}
	switch auto := o.Attrs.Str("auto_pad", "NOTSET"); auto {
	case "NOTSET":
	case "VALID":
		pads = make([]int, 2*len(kernel))
	case "SAME_UPPER", "SAME_LOWER":
		if pads, err = samePads(o, kernel, strides, dilations, auto == "SAME_LOWER"); err != nil {
			return nil, nil, nil, nil, err
		}
	default:
		return nil, nil, nil, nil, fmt.Errorf("auto_pad %s is not known", auto)
	}
	return kernel, pads, strides, dilations, nil
}

// transposeWindow is window of a ConvTranspose, where auto_pad SAME means something else and is not supported.
func transposeWindow(o *graph.Op) (kernel, pads, strides, dilations []int, err error) {
	if auto := o.Attrs.Str("auto_pad", "NOTSET"); auto != "NOTSET" && auto != "VALID" {
		return nil, nil, nil, nil, fmt.Errorf("auto_pad is not supported here; export with explicit pads")
	}
	return window(o)
}

// samePads are the pads that make a window operator's result ceil(input/stride) wide, the odd one at the end or in
// front.
func samePads(o *graph.Op, kernel, strides, dilations []int, front bool) ([]int, error) {
	x, n := o.In[0].Shape(), len(kernel)
	if len(x) != n+2 {
		return nil, fmt.Errorf("auto_pad needs an input of known rank; export with explicit pads")
	}
	pads := make([]int, 2*n)
	for i := range kernel {
		d := x[2+i]
		if !d.Static() {
			if strides[i] > 1 {
				return nil, fmt.Errorf("auto_pad needs a known size; export with explicit pads")
			}
			d = graph.D(strides[i])
		}
		total := max(0, ((d.N+strides[i]-1)/strides[i]-1)*strides[i]+(kernel[i]-1)*dilations[i]+1-d.N)
		pads[i], pads[i+n] = total/2, total-total/2
		if front {
			pads[i], pads[i+n] = pads[i+n], pads[i]
		}
	}
	return pads, nil
}

// unknownWindow keeps batch and channels where the rest of the shape cannot be found out: ONNX Runtime may still run
// it.
func unknownWindow(o *infer, x graph.Shape, channels graph.Dim) error {
	out := append(slices.Clone(x[:1]), channels)
	for i := 2; i < len(x); i++ {
		out = append(out, o.Unknown("window", i-2))
	}
	return o.Set(out)
}

func windowShape(o *infer, x graph.Shape, channels graph.Dim) error {
	k, p, s, d, err := window(o.Op)
	if err != nil {
		return unknownWindow(o, x, channels)
	}
	out := append(slices.Clone(x[:1]), channels)
	for i := range k {
		in := x[2+i].Add(graph.D(p[i] + p[i+len(k)] - d[i]*(k[i]-1) - 1))
		q, ok := graph.Dim{}, false
		switch {
		case in.Static() && in.N < 0:
			return fmt.Errorf("kernel %v is larger than %v", k, x)
		case in.Static() && o.Attrs.Int("ceil_mode", 0) == 1:
			// no window starts in the end padding
			if q, ok = graph.D((in.N+s[i]-1)/s[i]+1), true; (q.N-1)*s[i] >= x[2+i].N+p[i] {
				q.N--
			}
		case in.Static():
			q, ok = graph.D(in.N/s[i]+1), true
		case s[i] == 1:
			q, ok = in.Add(graph.D(1)), true
		}
		if !ok {
			q = o.Unknown("window", i)
		}
		out = append(out, q)
	}
	return o.Set(out)
}

func inferConv(o *infer) error {
	x, w := o.In[0].Shape(), o.In[1].Shape()
	if x == nil || w == nil || len(x) < 3 {
		return nil
	}
	if g := o.Attrs.Int("group", 1); g < 1 || len(w) != len(x) || x[1].Static() && w[1].Static() &&
		x[1] != w[1].Mul(graph.D(g)) {
		return fmt.Errorf("weights %v in %d groups do not fit", w, g)
	}
	return windowShape(o, x, w[0])
}

// convVJP gives the gradient of the data by a transposed convolution with the same weights.
func convVJP(c *call) []node {
	x, w, g := c.X(0), c.X(1), c.G()
	if x.Rank() < 3 {
		return c.Fail("the rank of its input is not known")
	}
	k, p, s, d, err := window(c.Op)
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
	at := graph.Attrs{"pads": graph.Attr(p), "strides": graph.Attr(s), "dilations": graph.Attr(d), "kernel_shape": graph.Attr(k), "group": graph.Attr(group)}
	if fixed {
		at["output_padding"] = graph.Attr(rest)
		return x.Graph().Apply(graph.Standard, "ConvTranspose", at, g, w)
	}
	at["pads"] = graph.Attr(append(slices.Clone(p[:n]), make([]int, n)...))
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
	dw := big.Graph().Apply(graph.Standard, "Conv", graph.Attrs{"pads": graph.Attr(p), "strides": graph.Attr(d), "dilations": graph.Attr(s),
		"group": graph.Attr(group)}, t, g)
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

func inferConvTranspose(o *infer) error {
	x, w := o.In[0].Shape(), o.In[1].Shape()
	if x == nil || w == nil || len(x) < 3 {
		return nil
	}
	group := o.Attrs.Int("group", 1)
	if group < 1 || len(w) != len(x) || x[1].Static() && w[0].Static() && x[1] != w[0] {
		return fmt.Errorf("weights %v in %d groups do not fit", w, group)
	}
	channels := w[1].Mul(graph.D(group))
	k, p, s, d, err := transposeWindow(o.Op)
	if _, given := o.Attrs.Ints("output_shape"); err != nil || given {
		return unknownWindow(o, x, channels)
	}
	extra, ok := o.Attrs.Ints("output_padding")
	if !ok || len(extra) != len(k) {
		extra = make([]int, len(k))
	}
	out := append(slices.Clone(x[:1]), channels)
	for i := range k {
		in := x[2+i]
		if !in.Static() {
			out = append(out, o.Unknown("window", i))
			continue
		}
		out = append(out, graph.D(s[i]*(in.N-1)+extra[i]+(k[i]-1)*d[i]+1-p[i]-p[i+len(k)]))
	}
	return o.Set(out)
}

// convTransposeVJP gives the gradient of the data by a convolution with the same weights.
func convTransposeVJP(c *call) []node {
	x, w, g := c.X(0), c.X(1), c.G()
	if x.Rank() < 3 {
		return c.Fail("the rank of its input is not known")
	}
	k, p, s, d, err := transposeWindow(c.Op)
	if err != nil {
		return c.Fail("%v", err)
	}
	if _, given := c.Op.Attrs.Ints("output_shape"); given {
		return c.Fail("attribute output_shape is not supported")
	}
	group := c.Op.Attrs.Int("group", 1)
	out := make([]node, len(c.Op.In))
	if c.Need(0) {
		out[0] = g.Graph().Apply(graph.Standard, "Conv", graph.Attrs{"pads": graph.Attr(p), "strides": graph.Attr(s), "dilations": graph.Attr(d),
			"kernel_shape": graph.Attr(k), "group": graph.Attr(group)}, g, w)
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
