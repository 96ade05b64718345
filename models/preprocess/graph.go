package preprocess

import (
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
	_ "promptfed/runtime/ops" // defines the operators
	"promptfed/runtime/tensor"
)

// Graph adds the preprocessing of a batch of images of one size to the graph of pixels, and returns the tower's input
// [B,3,Size,Size], which equals Pixels bit for bit. pixels are uint8 [B,H,W,3], with the colours of RGB, or float32
// [B,3,H,W] in [0,1], which are first rounded to 8 bits. H and W may be any size above 0.
//
// ONNX's Resize with antialias differs: in ONNX Runtime 1.17 and 1.31, on noise of ten sizes, it deviated from Pillow
// by 1 or 2 levels in up to 0.14 % of 8-bit values, because it places its kernels in float32, and by up to 27 levels on
// floats, because it does not round between the passes.
func (p Preprocess) Graph(pixels graph.Node) graph.Node {
	g := pixels.Graph()
	if err := p.Validate(); err != nil {
		return g.Fail("%w", err)
	}

	if p.Longest {
		return g.Fail("preprocess: images that are fitted by their longer side cannot be prepared inside a graph")
	}

	if pixels.DType() == graph.Uint8 {
		pixels = pixels.Transpose(0, 3, 1, 2)
	} else {
		levels := g.Apply(graph.Standard, "Round", nil, pixels.MulScalar(255))
		pixels = levels.Max(levels.ScalarLike(0)).Min(levels.ScalarLike(255)).Cast(graph.Uint8)
	}

	shape := pixels.ShapeOf()
	h, w := shape.Rows(g.Ints(2)).Cast(graph.Double), shape.Rows(g.Ints(3)).Cast(graph.Double)
	size := w.ScalarLike(float64(p.Size))
	width, height := size, size
	if p.Crop {
		width, height = whole(size.Mul(w).Div(w.Min(h))), whole(size.Mul(h).Div(w.Min(h)))
	}

	across, down := p.axis(w, width), p.axis(h, height)
	top := down[0].first
	pixels = g.Apply(graph.Standard, "Slice", nil, pixels, top, down[len(down)-1].end, g.Ints(2))
	columns := across.resample(pixels, g.Ints(0)).Transpose(0, 1, 3, 2)
	rgb := down.resample(columns, top).Transpose(0, 1, 3, 2).Cast(graph.Float)
	return p.normalised(rgb).Reshape(-1, 3, p.Size, p.Size)
}

// normalised scales and normalises float32 levels [B,3,H,W] with the same rounding as Normalise.
func (p Preprocess) normalised(levels graph.Node) graph.Node {
	g := levels.Graph()
	mean, std := g.Const(tensor.Of(p.Mean[:], 3, 1, 1)), g.Const(tensor.Of(p.Std[:], 3, 1, 1))
	return levels.Div(g.Scalar(255)).Sub(mean).Div(std)
}

// Unpack adds the inverse of Pack to the graph of packed, float32 [B,1,Size,Size], and returns the tower's input
// [B,3,Size,Size], which equals Pixels bit for bit. Every number before the division by 255 is a whole one below 2^24,
// so these operators must compute in float32 where the rest of a graph computes in less.
func (p Preprocess) Unpack(packed graph.Node) graph.Node {
	g := packed.Graph()
	shifted := whole(packed.Mul(g.Const(tensor.Of([]float32{1.0 / (1 << 16), 1.0 / (1 << 8), 1}, 3, 1, 1))))
	return p.normalised(shifted.Sub(whole(shifted.MulScalar(1.0 / 256)).MulScalar(256)))
}

// axis is one axis of a resampling inside a graph, split into bands. An output pixel depends on a few input pixels
// around its place, so the matrix products of bands are much smaller than one product of all outputs and all inputs.
type axis []band

// band computes consecutive outputs.
type band struct {
	first, end graph.Node // int64 [1], the range of the n input pixels
	digits     graph.Node // int8 [n,digits*size], the digits of the weights, the most significant first
	size       int        // outputs
}

// A Size is split into at most maxBands bands of at least minBand outputs.
const maxBands, minBand = 8, 16

// axis computes the same as weights.set, from double nodes [1]: in pixels are resized to out, of which the Size in the
// centre are kept.
func (p Preprocess) axis(in, out graph.Node) axis {
	g, filter := in.Graph(), filters[p.Resize]
	round := "Round" // ties to even
	if p.Floor {
		round = "Floor"
	}

	from := g.Apply(graph.Standard, round, nil, out.AddScalar(-float64(p.Size)).MulScalar(0.5))
	scale := in.Div(out)
	wide := scale.Max(scale.ScalarLike(1))
	support := wide.MulScalar(filter.support)
	inverse := wide.ScalarLike(1).Div(wide)

	var bands axis
	step := max(minBand, (p.Size+maxBands-1)/maxBands)
	for at := 0; at < p.Size; at += step {
		place := make([]int, min(step, p.Size-at))
		for i := range place {
			place[i] = at + i
		}

		middle := g.Ints(place...).Cast(graph.Double).Add(from).AddScalar(0.5).Mul(scale)
		lo := whole(middle.Sub(support).AddScalar(0.5).Max(in.ScalarLike(0)))
		hi := whole(middle.Add(support).AddScalar(0.5).Min(in))
		b := band{first: lo.Rows(g.Ints(0)).Cast(graph.Int64), end: hi.Rows(g.Ints(-1)).Cast(graph.Int64),
			size: len(place)}

		x := g.Apply(graph.Standard, "Range", nil, b.first.Reshape(), b.end.Reshape(), g.Scalar64(1)).
			Cast(graph.Double).Unsqueeze(1)
		k := filter.node(x.Sub(middle).AddScalar(0.5).Mul(inverse)) // [n,size]
		before := g.Apply(graph.Standard, "Not", nil, lo.Greater(x))
		k = g.Apply(graph.Standard, "And", nil, before, hi.Greater(x)).Where(k, k.ScalarLike(0))
		b.digits = split(fixedPoint(k))
		bands = append(bands, b)
	}

	return bands
}

// fixedPoint divides each column of k [n,size] by its sum and rounds to multiples of 2^-precision, halves away from 0.
func fixedPoint(k graph.Node) graph.Node {
	g, zero := k.Graph(), k.ScalarLike(0)
	// A running sum adds in the order of the loop in set; a reduction may use another order.
	sum := g.Apply(graph.Standard, "CumSum", nil, k, g.Scalar64(0)).Rows(g.Ints(-1))
	k = k.Div(sum.Equal(zero).Where(k.ScalarLike(1), sum)).MulScalar(1 << precision)
	away := whole(k.Abs().AddScalar(0.5))
	return zero.Greater(k).Where(away.Neg(), away)
}

// radix is the base of a weight's digits. A digit is in [-radix/2,radix/2), so the sum of two products with a byte fits
// 16 bits: processors without dot-product instructions multiply bytes in pairs that saturate there.
const radix, digits = 128, 4

// split splits whole numbers [n,size] of magnitude below 64*128^3 into digits.
func split(k graph.Node) graph.Node {
	list := make([]graph.Node, digits)
	for i := digits - 1; i > 0; i-- {
		high := whole(k.AddScalar(radix / 2).MulScalar(1.0 / radix))
		list[i], k = k.Sub(high.MulScalar(radix)), high
	}
	list[0] = k
	return graph.Concat(1, list...).Cast(onnx.TensorProto_INT8)
}

// resample resizes the last axis of bytes [B,3,N,n], which begins with input pixel start (int64 [1]).
func (a axis) resample(bytes, start graph.Node) graph.Node {
	g := bytes.Graph()
	parts := make([]graph.Node, len(a))
	for i, b := range a {
		near := g.Apply(graph.Standard, "Slice", nil, bytes, b.first.Sub(start), b.end.Sub(start), g.Ints(3))
		parts[i] = b.resample(near)
	}
	return graph.Concat(-1, parts...)
}

func (b band) resample(bytes graph.Node) graph.Node {
	g := bytes.Graph()
	number := func(v int) graph.Node { return g.Scalar64(v).Cast(graph.Int32) }
	sizes := slices.Repeat([]int{b.size}, digits)
	part := g.Apply(graph.Standard, "MatMulInteger", nil, bytes, b.digits).Cast(graph.Int32).Split(-1, sizes...)
	sum := part[0]
	for _, p := range part[1:] {
		sum = sum.Mul(number(radix)).Add(p)
	}

	sum = sum.Add(number(1 << (precision - 1))).Max(number(0)).Div(number(1 << precision))
	return sum.Min(number(255)).Cast(graph.Uint8)
}

// whole rounds down.
func whole(x graph.Node) graph.Node { return x.Graph().Apply(graph.Standard, "Floor", nil, x) }

// bilinearNode and cubicNode are the kernels of the filters on a double node.

func bilinearNode(x graph.Node) graph.Node {
	return x.ScalarLike(1).Sub(x.Abs()).Max(x.ScalarLike(0))
}

func cubicNode(x graph.Node) graph.Node {
	x = x.Abs()
	inner := x.MulScalar(1.5).AddScalar(-2.5).Mul(x).Mul(x).AddScalar(1)
	outer := x.AddScalar(-5).Mul(x).AddScalar(8).Mul(x).AddScalar(-4).MulScalar(-0.5)
	outer = x.ScalarLike(2).Greater(x).Where(outer, x.ScalarLike(0))
	return x.ScalarLike(1).Greater(x).Where(inner, outer)
}
