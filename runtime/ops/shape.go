package ops

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		def{Kind: "Reshape", MinInputs: 2, Attrs: "allowzero int", Infer: inferReshape, VJP: reshapeVJP},
		def{Kind: "Flatten", MinInputs: 1, Attrs: "axis int", Infer: ranked(inferFlatten), VJP: reshapeVJP},
		def{Kind: "Squeeze", MinInputs: 1, Attrs: "axes ints", Infer: ranked(inferSqueeze), VJP: reshapeVJP},
		def{Kind: "Unsqueeze", MinInputs: 1, Attrs: "axes ints", Infer: ranked(inferUnsqueeze), VJP: reshapeVJP},
		def{Kind: "Transpose", MinInputs: 1, Attrs: "perm ints", Infer: inferTranspose, VJP: transposeVJP},
		def{Kind: "Expand", MinInputs: 2, Infer: inferExpand, VJP: passGradient},
		def{Kind: "Tile", MinInputs: 2, Infer: ranked(inferTile), VJP: tileVJP},
		def{Kind: "Concat", MinInputs: 1, Attrs: "axis int", Infer: inferConcat, VJP: concatVJP},
		def{Kind: "Split", MinInputs: 1, Attrs: "axis int, split ints, num_outputs int", Infer: inferSplit,
			VJP: splitVJP, AllOutputs: true},
		def{Kind: "DepthToSpace", MinInputs: 1, Attrs: "blocksize int, mode string", Infer: inferDepthToSpace,
			Decompose: decomposeDepthToSpace},
		def{Kind: "SpaceToDepth", MinInputs: 1, Attrs: "blocksize int", Infer: inferSpaceToDepth,
			Decompose: decomposeSpaceToDepth},

		def{Kind: "Shape", MinInputs: 1, Attrs: "start int, end int", Infer: typed(graph.Int64, ranked(inferShape))},
		def{Kind: "Size", MinInputs: 1, Infer: typed(graph.Int64, inferSize)},
		def{Kind: "ConstantOfShape", MinInputs: 1, Attrs: "value tensor", Infer: inferConstantOfShape},
		def{Kind: "Range", MinInputs: 3, Infer: inferRange},
		def{Kind: "EyeLike", MinInputs: 1, Attrs: "dtype int, k int", Infer: func(o *infer) error {
			o.SetType(0, graph.DType(o.Attrs.Int("dtype", int(o.In[0].DType()))))
			return sameShape(o)
		}},
	)
}

func inferReshape(inference *infer) error {
	in, want := inference.In[0].Shape(), inference.In[1].Ints()
	if want == nil {
		return setRank(inference, inference.In[1], 0)
	}

	out := append(graph.Shape{}, want...)
	hole := -1
	for i, dim := range out {
		switch {
		case dim.Is(0) && inference.Attrs.Int("allowzero", 0) == 0:
			if in == nil {
				out[i] = inference.Unknown("reshape", i)
			} else if i >= len(in) {
				return fmt.Errorf("size 0 copies axis %d, which shape %v lacks", i, in)
			} else {
				out[i] = in[i]
			}
		case dim.Is(-1):
			if hole >= 0 {
				return fmt.Errorf("two axes are -1 in %v", graph.Shape(want))
			}
			hole = i
		case dim.Static() && dim.N < 0:
			return fmt.Errorf("size %d in %v", dim.N, graph.Shape(want))
		}
	}

	inference.SetContent(inference.In[0].ConstantInts())
	if in == nil {
		if hole >= 0 {
			out[hole] = inference.Unknown("reshape", hole)
		}
		return inference.Set(out)
	}

	if hole >= 0 {
		rest := graph.StaticDim(1)
		for i, d := range out {
			if i != hole {
				rest = rest.Mul(d)
			}
		}

		q, ok := in.Size().Div(rest)
		if !ok && in.Size().Static() && rest.Static() && !rest.Is(0) {
			return fmt.Errorf("%v does not divide into %v", in, graph.Shape(want))
		}

		if !ok {
			q = inference.Unknown("reshape", hole)
		}

		out[hole] = q
	} else if a, b := in.Size(), out.Size(); a.Sym == b.Sym && a != b {
		return fmt.Errorf("%v has %v elements, %v has %v", in, a, graph.Shape(want), b)
	}

	return inference.Set(out)
}

func inferFlatten(o *infer, in graph.Shape) error {
	a := o.Attrs.Int("axis", 1)
	if a != len(in) {
		var err error
		if a, err = graph.Axis(a, len(in)); err != nil {
			return err
		}
	}

	return o.Set(graph.Shape{in[:a].Size(), in[a:].Size()})
}

func inferSqueeze(inference *infer, in graph.Shape) error {
	axes, ok := axesOf(inference.Op)
	inference.SetContent(inference.In[0].ConstantInts())
	if !ok {
		return nil
	}

	drop, err := resolve(axes, 0, len(in))
	if err != nil {
		return err
	}

	out := graph.Shape{}
	for i, d := range in {
		switch given := slices.Contains(drop, i); {
		case given && d.Static() && d.N != 1:
			return fmt.Errorf("axis %d has size %v", i, d)
		case !given && (axes != nil || !d.Is(1)):
			out = append(out, d)
		}
	}

	return inference.Set(out)
}

func inferUnsqueeze(inference *infer, out graph.Shape) error {
	axes, ok := axesOf(inference.Op)
	inference.SetContent(inference.In[0].ConstantInts())
	if !ok {
		return nil
	}

	if axes == nil {
		return fmt.Errorf("needs axes")
	}

	at, err := resolve(axes, 0, len(out)+len(axes))
	if err != nil {
		return err
	}

	slices.Sort(at)
	if len(slices.Compact(slices.Clone(at))) < len(at) {
		return fmt.Errorf("an axis twice in %v", axes)
	}

	for _, a := range at {
		out = slices.Insert(out, a, graph.StaticDim(1))
	}

	return inference.Set(out)
}

func reshapeVJP(c *call) []node { return []node{c.G().ReshapeLike(c.X(0))} }

// permutation returns the permutation of a Transpose operator of known rank.
func permutation(o *graph.Op) []int {
	if p, ok := o.Attrs.Ints("perm"); ok {
		return p
	}
	p := axesFrom(0, o.In[0].Rank())
	slices.Reverse(p)
	return p
}

func inferTranspose(inference *infer) error {
	in := inference.In[0].Shape()
	perm := permutation(inference.Op)
	if in != nil && len(perm) != len(in) {
		return fmt.Errorf("permutation %v of rank %d", perm, len(in))
	}

	if !slices.Equal(slices.Sorted(slices.Values(perm)), axesFrom(0, len(perm))) {
		return fmt.Errorf("%v is no permutation", perm)
	}

	if in == nil {
		return nil
	}

	if c, ok := contentOf(inference.In[0]); ok {
		inference.SetContent(c.transposed(perm))
	}

	return inference.Set(convert.Slice(perm, func(a int) graph.Dim { return in[a] }))
}

func transposeVJP(backward *call) []node {
	if backward.X(0).Rank() < 0 {
		if _, ok := backward.Attrs.Ints("perm"); !ok {
			return []node{apply("Transpose", nil, backward.G())}
		}
	}

	p := permutation(backward.Op)
	back := make([]int, len(p))
	for i, a := range p {
		back[a] = i
	}

	return []node{backward.G().Transpose(back...)}
}

func inferExpand(inference *infer) error {
	in, want := inference.In[0].Shape(), inference.In[1].Ints()
	switch {
	case want == nil && in == nil:
		return nil
	case want == nil:
		return setRank(inference, inference.In[1], len(in))
	}

	s, err := graph.Broadcast(in, want)
	if v := inference.In[0].Ints(); len(v) == 1 && fits(s.Size()) {
		inference.SetContent(slices.Repeat(v, s.Size().N))
	}

	inference.Set(s)
	return err
}

// fits reports whether elements of a tensor of n may be known.
func fits(n graph.Dim) bool { return n.Static() && n.N >= 0 && n.N <= graph.MaxContent }

func inferTile(o *infer, out graph.Shape) error {
	reps := o.In[1].Ints()
	if len(reps) != len(out) {
		return nil
	}

	for i := range out {
		out[i] = out[i].Mul(reps[i])
	}

	return o.Set(out)
}

// tileVJP sums over the repeats: [r1*d1, ...] is reshaped to [r1, d1, ...].
func tileVJP(backward *call) []node {
	x, g := backward.X(0), backward.G().Graph()
	if x.Rank() < 0 {
		return backward.Fail("the rank of its input is not known")
	}

	var sizes []node
	var axes []int
	for i := range x.Rank() {
		axes = append(axes, len(sizes))
		sizes = append(sizes, backward.X(1).Gather(0, g.Ints(i)), sizeOf(x, i))
	}

	if len(axes) == 0 {
		return []node{backward.G()}
	}

	return []node{reshape(backward.G(), vector(sizes...)).Sum(axes...)}
}

func inferConcat(inference *infer) error {
	if err := inference.RequireInputs(len(inference.In)); err != nil {
		return err
	}

	ints := []graph.Dim{}
	for _, x := range inference.In {
		if x.Ints() == nil || len(x.Shape()) != 1 || len(ints) > graph.MaxContent {
			ints = nil
			break
		}
		ints = append(ints, x.Ints()...)
	}

	inference.SetContent(ints)
	var out graph.Shape
	for _, x := range inference.In {
		shape := x.Shape()
		if shape == nil {
			return nil
		}

		axis, err := graph.Axis(inference.Attrs.Int("axis", 0), len(shape))
		if err != nil {
			return err
		}

		if out == nil {
			out = slices.Clone(shape)
			continue
		}

		if len(shape) != len(out) {
			return fmt.Errorf("ranks %d and %d", len(out), len(shape))
		}

		for i := range shape {
			switch {
			case i == axis:
				out[i] = out[i].Add(shape[i])
			case out[i].Static() && shape[i].Static() && out[i] != shape[i]:
				return fmt.Errorf("axis %d is %v and %v", i, out[i], shape[i])
			case shape[i].Static():
				out[i] = shape[i]
			}
		}
	}

	return inference.Set(out)
}

func concatVJP(backward *call) []node {
	out := make([]node, len(backward.In))
	axis := backward.Attrs.Int("axis", 0)
	g := backward.G().Graph()
	var at node
	off, static := 0, true
	for i, input := range backward.In {
		if input.Rank() < 0 {
			return backward.Fail("the rank of input %d is not known", i)
		}

		resolved, err := graph.Axis(axis, input.Rank())
		if err != nil {
			return backward.Fail("%v", err)
		}

		d := input.Shape()[resolved]
		if static && d.Static() {
			if backward.NeedsGrad(i) {
				out[i] = backward.G().Slice(resolved, off, off+d.N)
			}
			off += d.N
			continue
		}

		if static {
			static, at = false, g.Ints(off)
		}

		end := at.Add(sizeOf(input, resolved))
		if backward.NeedsGrad(i) {
			out[i] = apply("Slice", nil, backward.G(), at, end, g.Ints(resolved))
		}

		at = end
	}

	return out
}

func inferSplit(inference *infer) error {
	in, axis, err := axisOf(inference, 0, 0)
	if in == nil {
		return err
	}

	sizes, ok := inference.Attrs.Ints("split")
	if !ok {
		sizes, ok = inference.X(1).StaticInts()
	}

	if len(sizes) != 0 && len(sizes) != len(inference.Out) {
		return fmt.Errorf("%d sizes for %d outputs", len(sizes), len(inference.Out))
	}

	total := 0
	for i := range inference.Out {
		shape := slices.Clone(in)
		switch {
		case len(sizes) > 0:
			shape[axis] = graph.StaticDim(sizes[i])
			total += sizes[i]
		case !ok:
			shape[axis] = inference.Unknown("split", i)
		case in[axis].Static(): // equal parts, the last one may be smaller
			each := (in[axis].N-1)/len(inference.Out) + 1
			shape[axis] = graph.StaticDim(max(0, min(each, in[axis].N-i*each)))
		default:
			shape[axis] = quotient(inference, in[axis], len(inference.Out), "split", i)
		}

		inference.SetOutput(i, shape)
	}

	if len(sizes) > 0 && in[axis].Static() && in[axis].N != total {
		return fmt.Errorf("sizes %v of an axis of %v", sizes, in[axis])
	}

	return nil
}

func splitVJP(c *call) []node {
	parts := make([]node, len(c.Out))
	for i, o := range c.Out {
		if parts[i] = c.DY[i]; !parts[i].OK() {
			parts[i] = ZerosLike(o)
		}
	}
	return []node{graph.Concat(c.Attrs.Int("axis", 0), parts...)}
}

// setRank gives the output max(least, number of elements of the integer vector n) axes of unknown size.
func setRank(inference *infer, n node, least int) error {
	s := n.Shape()
	if len(s) != 1 || !s[0].Static() {
		return nil
	}

	rank := max(s[0].N, least)
	if rank > graph.MaxRank {
		return fmt.Errorf("the result has %d axes; at most %d are supported", rank, graph.MaxRank)
	}

	out := make(graph.Shape, rank)
	for i := range out {
		out[i] = inference.Unknown(strings.ToLower(inference.Kind), i)
	}

	return inference.Set(out)
}

func inferDepthToSpace(o *infer) error {
	in, b := o.In[0].Shape(), o.Attrs.Int("blocksize", 0)
	if len(in) != 4 || b < 1 || b > maxWindow {
		return nil
	}
	c := quotient(o, in[1], b*b, "channels")
	return o.Set(graph.Shape{in[0], c, in[2].Mul(graph.StaticDim(b)), in[3].Mul(graph.StaticDim(b))})
}

// decomposeDepthToSpace moves blocks of channels into space. The modes DCR and CRD differ in the position of the block
// axes among the channels.
func decomposeDepthToSpace(c *call, in []node) node {
	block := c.Attrs.Int("blocksize", 0)
	sizes, ok := channelsAndSpace(in[0], block)
	if !ok || sizes[0]%(block*block) != 0 {
		return c.FailNode("channels and size of its input must be known when the graph is built")
	}

	channels := sizes[0] / (block * block)
	y := node{}
	if c.Attrs.Str("mode", "DCR") == "CRD" {
		y = in[0].Reshape(-1, channels, block, block, sizes[1], sizes[2]).Transpose(0, 1, 4, 2, 5, 3)
	} else {
		y = in[0].Reshape(-1, block, block, channels, sizes[1], sizes[2]).Transpose(0, 3, 4, 1, 5, 2)
	}

	return y.Reshape(-1, channels, sizes[1]*block, sizes[2]*block)
}

func inferSpaceToDepth(o *infer) error {
	in, b := o.In[0].Shape(), o.Attrs.Int("blocksize", 0)
	if len(in) != 4 || b < 1 || b > maxWindow {
		return nil
	}
	return o.Set(graph.Shape{in[0], in[1].Mul(graph.StaticDim(b * b)), quotient(o, in[2], b, "space", 2),
		quotient(o, in[3], b, "space", 3)})
}

func decomposeSpaceToDepth(c *call, in []node) node {
	b := c.Attrs.Int("blocksize", 0)
	s, ok := channelsAndSpace(in[0], b)
	if !ok || s[1]%b != 0 || s[2]%b != 0 {
		return c.FailNode("channels and size of its input must be known when the graph is built")
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

func inferShape(o *infer, in graph.Shape) error {
	from, to := clampAxis(o.Attrs.Int("start", 0), len(in)), clampAxis(o.Attrs.Int("end", len(in)), len(in))
	sizes := in[from:max(from, to)]
	o.SetContent(sizes)
	return o.Set(graph.Static(len(sizes)))
}

func clampAxis(a, rank int) int {
	if a < 0 {
		a += rank
	}
	return min(max(a, 0), rank)
}

func inferSize(o *infer) error {
	if s := o.In[0].Shape(); s != nil {
		o.SetContent([]graph.Dim{s.Size()})
	}
	return o.Set(graph.Shape{})
}

func inferConstantOfShape(inference *infer) error {
	dtype, dims := graph.Float, inference.In[0].Ints()
	if p := inference.Attrs.Tensor("value"); p != nil {
		dtype = graph.DType(p.DataType)
		n := graph.Shape(dims).Size()
		if fill, ok := graph.TensorInts(p); ok && len(fill) == 1 && dims != nil && fits(n) {
			inference.SetContent(slices.Repeat(fill, n.N))
		}
	}

	inference.SetType(0, dtype)
	if dims == nil {
		return setRank(inference, inference.In[0], 0)
	}

	return inference.Set(append(graph.Shape{}, dims...))
}

func inferRange(inference *infer) error {
	start, b, c := inference.In[0].Ints(), inference.In[1].Ints(), inference.In[2].Ints()
	if len(start) != 1 || len(b) != 1 || len(c) != 1 || !c[0].Static() {
		return inference.Set(graph.Shape{inference.Unknown("range")})
	}

	length, step := b[0].Sub(start[0]), c[0].N
	switch {
	case step == 0:
		return fmt.Errorf("step 0")
	case length.Static():
		length = graph.StaticDim(rangeLen(0, length.N, step))
	case step != 1:
		length = inference.Unknown("range")
	}

	if length.Static() && length.N <= graph.MaxContent && start[0].Static() {
		var v []graph.Dim
		for i := range length.N {
			v = append(v, graph.StaticDim(start[0].N+i*step))
		}
		inference.SetContent(v)
	}

	return inference.Set(graph.Shape{length})
}
