package ops

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
)

// windowAttrs are attributes of convolution and pooling.
const windowAttrs = "auto_pad string, kernel_shape ints, pads ints, strides ints, dilations ints"

func init() {
	graph.Register(
		def{Kind: "Conv", MinInputs: 2, MinRank: 3, Attrs: windowAttrs + ", group int", Infer: inferConv, VJP: convVJP},
		def{Kind: "ConvTranspose", MinInputs: 2, MinRank: 3, Infer: inferConvTranspose, VJP: convTransposeVJP,
			Attrs: windowAttrs + ", group int, output_padding ints, output_shape ints"},
	)
}

// maxWindow bounds kernels, strides and dilations.
const maxWindow = 1 << 20

// geometry describes the windows of a convolution or of pooling: one entry per spatial axis, two of pads.
type geometry struct{ kernel, pads, strides, dilations []int }

func (w geometry) attrs() graph.Attrs {
	return graph.Attrs{"kernel_shape": graph.Attr(w.kernel), "pads": graph.Attr(w.pads),
		"strides": graph.Attr(w.strides), "dilations": graph.Attr(w.dilations)}
}

// span returns the extent of a window along axis i, with dilation.
func (w geometry) span(i int) int { return w.dilations[i]*(w.kernel[i]-1) + 1 }

func (w geometry) pad(i int) int { return w.pads[i] + w.pads[i+len(w.kernel)] }

// windows returns the geometry of a convolution or pooling operator with a known kernel.
func windows(op *graph.Op) (window geometry, err error) {
	kernel, ok := op.Attrs.Ints("kernel_shape")
	if weights := op.X(1); !ok && weights.OK() && weights.Rank() > 2 {
		if kernel, ok = weights.Shape()[2:].Ints(); !ok {
			return window, fmt.Errorf("the kernel size is not known")
		}
	}

	n := len(kernel)
	if r := op.In[0].Rank(); r >= 0 && n != r-2 {
		return window, fmt.Errorf("a kernel of %v for an input of rank %d", kernel, r)
	}

	get := func(name string, v, count int) []int {
		if a, ok := op.Attrs.Ints(name); ok && len(a) == count {
			return a
		}
		return slices.Repeat([]int{v}, count)
	}

	window = geometry{kernel, get("pads", 0, 2*n), get("strides", 1, n), get("dilations", 1, n)}
	for _, v := range slices.Concat(kernel, window.strides, window.dilations) {
		if v < 1 || v > maxWindow {
			return window, fmt.Errorf("kernel %v, strides %v and dilations %v must be from 1 to %d", kernel,
				window.strides, window.dilations, maxWindow)
		}
	}

	switch auto := op.Attrs.Str("auto_pad", "NOTSET"); auto {
	case "NOTSET":
	case "VALID":
		window.pads = make([]int, 2*n)
	case "SAME_UPPER", "SAME_LOWER":
		err = window.padSame(op.In[0].Shape(), auto == "SAME_LOWER")
	default:
		err = fmt.Errorf("auto_pad %s is not known", auto)
	}

	return window, err
}

// transposeWindows is windows for ConvTranspose, for which auto_pad SAME has another meaning and is not supported.
func transposeWindows(o *graph.Op) (geometry, error) {
	if auto := o.Attrs.Str("auto_pad", "NOTSET"); auto != "NOTSET" && auto != "VALID" {
		return geometry{}, fmt.Errorf("auto_pad is not supported here; export with explicit pads")
	}
	return windows(o)
}

// padSame sets the pads for a result of ceil(input/stride) elements for an input of shape x, an odd one at the end or
// at the front.
func (w geometry) padSame(x graph.Shape, front bool) error {
	n := len(w.kernel)
	if len(x) != n+2 {
		return fmt.Errorf("auto_pad needs an input of known rank; export with explicit pads")
	}

	for i, stride := range w.strides {
		d := x[2+i]
		if !d.Static() {
			if stride > 1 {
				return fmt.Errorf("auto_pad needs a known size; export with explicit pads")
			}
			d = graph.StaticDim(stride)
		}
		total := max(0, ((d.N+stride-1)/stride-1)*stride+w.span(i)-d.N)
		w.pads[i], w.pads[i+n] = total/2, total-total/2
		if front {
			w.pads[i], w.pads[i+n] = w.pads[i+n], w.pads[i]
		}
	}

	return nil
}

// unknownWindow sets only batch and channels of the shape, if the rest cannot be inferred; ONNX Runtime may still run
// the operator.
func unknownWindow(o *infer, x graph.Shape, channels graph.Dim) error {
	out := append(slices.Clone(x[:1]), channels)
	for i := 2; i < len(x); i++ {
		out = append(out, o.Unknown("window", i-2))
	}
	return o.Set(out)
}

func windowShape(inference *infer, x graph.Shape, channels graph.Dim) error {
	geometry, err := windows(inference.Op)
	if err != nil {
		return unknownWindow(inference, x, channels)
	}

	out := append(slices.Clone(x[:1]), channels)
	for i, stride := range geometry.strides {
		in, size := x[2+i].Add(graph.StaticDim(geometry.pad(i)-geometry.span(i))), inference.Unknown("window", i)
		switch {
		case in.Static() && in.N < 0:
			return fmt.Errorf("kernel %v is larger than %v", geometry.kernel, x)
		case in.Static() && inference.Attrs.Int("ceil_mode", 0) == 1:
			// no window starts in the padding at the end
			if size = graph.StaticDim((in.N+stride-1)/stride + 1); (size.N-1)*stride >= x[2+i].N+geometry.pads[i] {
				size.N--
			}
		case in.Static():
			size = graph.StaticDim(in.N/stride + 1)
		case stride == 1:
			size = in.Add(graph.StaticDim(1))
		}

		out = append(out, size)
	}

	return inference.Set(out)
}

func inferConv(inference *infer) error {
	x, w := inference.In[0].Shape(), inference.In[1].Shape()
	if x == nil || w == nil || len(x) < 3 {
		return nil
	}

	if g := inference.Attrs.Int("group", 1); g < 1 || len(w) != len(x) || x[1].Static() && w[1].Static() &&
		x[1] != w[1].Mul(graph.StaticDim(g)) {
		return fmt.Errorf("weights %v in %d groups do not fit", w, g)
	}

	return windowShape(inference, x, w[0])
}

// convVJP computes the gradient of the data by a transposed convolution with the same weights.
func convVJP(c *call) []node {
	w, err := windows(c.Op)
	return convolutionVJP(c, w, err, c.X(0), c.G(), func(group int) node {
		return transposed(c.X(0), c.G(), c.X(1), group, w)
	})
}

// convolutionVJP is the VJP of a convolution from big to small, or of a transposed one from small to big. dx returns
// the gradient of the data.
func convolutionVJP(c *call, w geometry, err error, big, small node, dx func(group int) node) []node {
	if err != nil {
		return c.Fail("%v", err)
	}
	group := c.Attrs.Int("group", 1)
	return each(func(*call) node { return dx(group) }, func(*call) node { return kernelGrad(big, small, group, w) },
		func(*call) node { return c.G().Sum(append([]int{0}, axesFrom(2, c.G().Rank())...)...) })(c)
}

// transposed returns the gradient of the input x of a convolution from the gradient of its result: a transposed
// convolution with the size of x. Elements at the end of x that no window covers (if the stride does not divide) get
// zeros.
func transposed(x, gradient, weights node, group int, window geometry) node {
	n := len(window.kernel)
	rest, fixed := make([]int, n), true
	for i, stride := range window.strides {
		if in := x.Shape()[2+i]; stride > 1 {
			fixed = fixed && in.Static()
			rest[i] = (in.N + window.pad(i) - window.span(i)) % stride
		}
	}

	at := window.attrs()
	at["group"] = graph.Attr(group)
	if fixed {
		at["output_padding"] = graph.Attr(rest)
		return apply("ConvTranspose", at, gradient, weights)
	}

	at["pads"] = graph.Attr(append(slices.Clone(window.pads[:n]), make([]int, n)...))
	full := apply("ConvTranspose", at, gradient, weights)
	none := x.Graph().Ints(make([]int, n+2)...)
	return apply("Pad", nil, full, graph.Concat(0, none, x.ShapeOf().Sub(full.ShapeOf())))
}

// kernelGrad returns the gradient of the weights [M, C/group, k...] of a convolution of big [N,C,...] from the gradient
// of its result, small [N,M,...]: a convolution of big with small, in which batch and channels change places, and
// stride and dilation too. For a transposed convolution, big and small change places.
func kernelGrad(big, small node, group int, window geometry) node {
	swap := swap01(big.Rank())
	data, weights := big.Transpose(swap...), small.Transpose(swap...)
	if group > 1 { // [C,N,...] to [C/group, group*N, ...]
		var sizes []node
		for i := range window.kernel {
			sizes = append(sizes, sizeOf(big, 2+i))
		}
		gr := big.Graph()
		split := reshape(data, vector(append([]node{gr.Ints(group, -1), sizeOf(big, 0)}, sizes...)...))
		data = reshape(split.Transpose(swap01(split.Rank())...), vector(append([]node{sizeOf(split, 1), gr.Ints(-1)},
			sizes...)...))
	}

	dw := apply("Conv", graph.Attrs{"pads": graph.Attr(window.pads), "strides": graph.Attr(window.dilations),
		"dilations": graph.Attr(window.strides), "group": graph.Attr(group)}, data, weights)
	dw = dw.Transpose(swap...)
	for i, k := range window.kernel {
		dw = dw.Slice(2+i, 0, k)
	}

	return dw
}

func swap01(rank int) []int { return append([]int{1, 0}, axesFrom(2, rank)...) }

func inferConvTranspose(inference *infer) error {
	x, weights := inference.In[0].Shape(), inference.In[1].Shape()
	if x == nil || weights == nil || len(x) < 3 {
		return nil
	}

	group := inference.Attrs.Int("group", 1)
	if group < 1 || len(weights) != len(x) || x[1].Static() && weights[0].Static() && x[1] != weights[0] {
		return fmt.Errorf("weights %v in %d groups do not fit", weights, group)
	}

	channels := weights[1].Mul(graph.StaticDim(group))
	geometry, err := transposeWindows(inference.Op)
	if _, given := inference.Attrs.Ints("output_shape"); err != nil || given {
		return unknownWindow(inference, x, channels)
	}

	extra, ok := inference.Attrs.Ints("output_padding")
	if !ok || len(extra) != len(geometry.kernel) {
		extra = make([]int, len(geometry.kernel))
	}

	out := append(slices.Clone(x[:1]), channels)
	for i, stride := range geometry.strides {
		d := inference.Unknown("window", i)
		if in := x[2+i]; in.Static() {
			d = graph.StaticDim(stride*(in.N-1) + extra[i] + geometry.span(i) - geometry.pad(i))
		}
		out = append(out, d)
	}

	return inference.Set(out)
}

// convTransposeVJP computes the gradient of the data by a convolution with the same weights.
func convTransposeVJP(c *call) []node {
	w, err := transposeWindows(c.Op)
	if _, given := c.Attrs.Ints("output_shape"); given {
		err = fmt.Errorf("attribute output_shape is not supported")
	}

	return convolutionVJP(c, w, err, c.G(), c.X(0), func(group int) node {
		at := w.attrs()
		at["group"] = graph.Attr(group)
		return apply("Conv", at, c.G(), c.X(1))
	})
}
