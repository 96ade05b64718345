package ops

import (
	"fmt"
	"slices"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		def{Kind: "Gather", MinInputs: 2, Attrs: "axis int", Infer: inferGather, VJP: gatherVJP},
		def{Kind: "GatherElements", MinInputs: 2, Attrs: "axis int",
			Infer: func(o *infer) error { return o.Set(o.In[1].Shape()) },
			VJP: each(func(c *call) node {
				return addAt(ZerosLike(c.X(0)), c.Attrs.Int("axis", 0), c.X(1), c.G())
			})},
		def{Kind: "GatherND", MinInputs: 2, Attrs: "batch_dims int", Infer: inferGatherND, VJP: gatherNDVJP},
		def{Kind: "ScatterND", MinInputs: 3, Attrs: "reduction string", Infer: sameShape,
			VJP: func(c *call) []node { return scatterVJP(c, "ScatterND", "GatherND", nil) }},
		def{Kind: "ScatterElements", MinInputs: 3, Attrs: "axis int, reduction string", Infer: sameShape,
			VJP: func(c *call) []node {
				axis := graph.Attrs{"axis": graph.Attr(c.Attrs.Int("axis", 0))}
				return scatterVJP(c, "ScatterElements", "GatherElements", axis)
			}},
		def{Kind: "NonZero", MinInputs: 1, Infer: typed(graph.Int64, ranked(inferNonZero))},
		def{Kind: "OneHot", MinInputs: 3, Attrs: "axis int", Infer: inferOneHot},
		def{Kind: "TopK", MinInputs: 2, Attrs: "axis int, largest int, sorted int", Infer: inferTopK, VJP: topKVJP,
			NonSmooth: true},
		itsOwnGradient("Trilu", 1, "upper int"),
		itsOwnGradient("ReverseSequence", 2, "batch_axis int, time_axis int"),
	)
}

func inferNonZero(inference *infer, in graph.Shape) error {
	v, ok := inference.In[0].StaticInts()
	if !ok || len(in) != 1 {
		return inference.Set(graph.Shape{graph.StaticDim(max(1, len(in))), inference.Unknown("nonzero")})
	}

	at := []graph.Dim{}
	for i, x := range v {
		if x != 0 {
			at = append(at, graph.StaticDim(i))
		}
	}

	inference.SetContent(at)
	return inference.Set(graph.Static(1, len(at)))
}

func inferGather(inference *infer) error {
	idx, content := inference.In[1].Shape(), inference.In[0].Ints()
	shape, axis, err := axisOf(inference, 0, 0)
	if shape == nil || idx == nil {
		return err
	}

	index, ok := inference.In[1].StaticInts()
	if n := shape[axis]; ok && n.Static() {
		for _, i := range index {
			if i < -n.N || i >= n.N {
				return fmt.Errorf("index %d is outside an axis of %d", i, n.N)
			}
		}
	}

	if ok && content != nil {
		var picked []graph.Dim
		for _, i := range index {
			if i < 0 {
				i += len(content)
			}
			picked = append(picked, content[i])
		}
		inference.SetContent(picked)
	}

	return inference.Set(slices.Replace(shape, axis, axis+1, idx...))
}

// gatherVJP adds each row of the gradient to the row that Gather read. Where no row is read twice, and this is known
// when the graph is built, it gathers the rows of the gradient and a row of zeros.
func gatherVJP(backward *call) []node {
	data, idx := backward.X(0), backward.X(1)
	if data.Rank() < 0 || idx.Rank() < 0 {
		return backward.Fail("the ranks of %v and %v are not known", data, idx)
	}

	axis, err := graph.Axis(backward.Attrs.Int("axis", 0), data.Rank())
	if err != nil {
		return backward.Fail("%v", err)
	}

	if idx.Rank() == 0 && len(idx.Ints()) == 1 && idx.Ints()[0].Static() && idx.Ints()[0].N >= 0 &&
		data.Shape()[axis].Static() {
		i := idx.Ints()[0].N // one slice: exporters select the class token so
		pads := make([]int, 2*data.Rank())
		pads[axis], pads[axis+data.Rank()] = i, data.Shape()[axis].N-i-1
		return []node{apply("Pad", nil, backward.G().Unsqueeze(axis), data.Graph().Ints(pads...))}
	}

	if axis == 0 {
		if from, ok := inverse(data, idx); ok {
			return []node{graph.Concat(0, backward.G(), ZerosLike(data).Slice(0, 0, 1)).Rows(from)}
		}
	}

	return []node{scatterAxis(backward.G(), sizeOf(data, axis), axis, idx)}
}

// inverse returns where each row of data is in the rows that idx names, or behind them. ok is false if a row is named
// twice, or if this is not known.
func inverse(data, idx node) (from node, ok bool) {
	shape, known := data.Shape().Ints()
	index, given := idx.StaticInts()
	if !known || !given || idx.Rank() != 1 {
		return node{}, false
	}

	at := slices.Repeat([]int{len(index)}, shape[0])
	for i, row := range index {
		if row < 0 {
			row += shape[0]
		}
		if at[row] < len(index) {
			return node{}, false
		}
		at[row] = i
	}

	return data.Graph().Ints(at...), true
}

// scatterAxis is the gradient of Gather on an axis: the index axes of gradient, from axis on, become one axis of the
// given size, and each entry is added at the index that Gather read.
func scatterAxis(gradient, size node, axis int, idx node) node {
	rank := idx.Rank()
	if rank < 0 || gradient.Rank() < 0 {
		return gradient.Graph().Fail("the ranks of %v and %v are not known", gradient, idx)
	}

	all := axesFrom(0, gradient.Rank())
	back := slices.Insert(axesFrom(1, gradient.Rank()-rank+1), axis, 0) // moves the scattered axis back
	if axis > 0 {
		front := slices.Concat(all[axis:axis+rank], all[:axis], all[axis+rank:]) // moves the index axes to the front
		gradient = gradient.Transpose(front...)
	}

	rows, shape := []node{gradient.Graph().Ints(-1)}, []node{size}
	for i := rank; i < gradient.Rank(); i++ {
		rows, shape = append(rows, sizeOf(gradient, i)), append(shape, sizeOf(gradient, i))
	}

	if rank != 1 {
		gradient = reshape(gradient, vector(rows...))
	}

	column := append([]int{-1}, slices.Repeat([]int{1}, gradient.Rank()-1)...)
	// Not ScatterND: with several threads ONNX Runtime's ScatterND loses sums if an index is repeated.
	d := addAt(zeros(gradient, vector(shape...)), 0, expandLike(idx.Reshape(column...), gradient), gradient)
	if axis > 0 {
		d = d.Transpose(back...)
	}

	return d
}

// addAt adds values to the elements of x at indices along an axis.
func addAt(x node, axis int, index, values node) node {
	return apply("ScatterElements",
		graph.Attrs{"axis": graph.Attr(axis), "reduction": graph.Attr("add")}, x, index, values)
}

func inferGatherND(inference *infer) error {
	shape, idx := inference.In[0].Shape(), inference.In[1].Shape()
	if shape == nil || len(idx) == 0 || !idx[len(idx)-1].Static() {
		return nil
	}

	reach, batch := idx[len(idx)-1].N, inference.Attrs.Int("batch_dims", 0)
	k := reach + batch
	if batch < 0 || batch >= len(idx) || reach < 0 || k > len(shape) || k < 0 {
		return fmt.Errorf("indices of shape %v after %d batch axes do not fit shape %v", idx, batch, shape)
	}

	return inference.Set(append(slices.Clone(idx[:len(idx)-1]), shape[k:]...))
}

func gatherNDVJP(backward *call) []node {
	if backward.Attrs.Int("batch_dims", 0) != 0 {
		return backward.Fail("batch dimensions are not supported")
	}

	data, idx, g := backward.X(0), backward.X(1), backward.X(0).Graph()
	if data.Rank() < 0 || idx.Rank() < 1 || !idx.Shape()[idx.Rank()-1].Static() {
		return backward.Fail("the ranks of %v and %v must be known", data, idx)
	}

	// The axes that an index tuple covers are flattened to one, along which scatterAxis adds.
	var position node
	reach := idx.Shape()[idx.Rank()-1].N
	size := g.Ints(1)

	for i := range reach {
		n := sizeOf(data, i)
		at := idx.Gather(-1, g.Scalar64(i))
		at = apply("Mod", nil, at.Add(n), n) // indices may count from the end
		if size = size.Mul(n); i == 0 {
			position = at
		} else {
			position = position.Mul(n).Add(at)
		}
	}

	if !position.OK() {
		return backward.Fail("the index tuples are empty")
	}

	return []node{scatterAxis(backward.G(), size, 0, position).ReshapeLike(data)}
}

// scatterVJP gathers the gradient of the updates where they were written; the replaced elements get none.
func scatterVJP(backward *call, scatter, gather string, at graph.Attrs) []node {
	gradient, idx := backward.G(), backward.X(1)
	out := make([]node, 3)
	mode := backward.Attrs.Str("reduction", "none")
	if mode != "none" && mode != "add" {
		return backward.Fail("reduction %s is not supported", mode)
	}

	if backward.NeedsGrad(2) {
		out[2] = apply(gather, at, gradient, idx)
	}

	if backward.NeedsGrad(0) {
		out[0] = gradient
		if mode == "none" {
			out[0] = apply(scatter, at, gradient, idx, ZerosLike(backward.X(2)))
		}
	}

	return out
}

func inferOneHot(inference *infer) error {
	inference.SetType(0, inference.In[2].DType())
	in, axis, err := axisOf(inference, -1, 1)
	if in == nil {
		return err
	}

	depth := inference.Unknown("depth")
	if d := inference.In[1].Ints(); len(d) == 1 {
		depth = d[0]
	}

	if depth.Static() && depth.N < 1 {
		return fmt.Errorf("depth %v", depth)
	}

	return inference.Set(slices.Insert(in, axis, depth))
}

func inferTopK(inference *infer) error {
	if len(inference.Out) > 1 {
		inference.SetType(1, graph.Int64)
	}

	out, a, err := axisOf(inference, -1, 0)
	if out == nil {
		return err
	}

	out[a] = inference.Unknown("topk")
	if k := inference.In[1].Ints(); len(k) == 1 {
		out[a] = k[0]
	}

	for i := range inference.Out {
		inference.SetOutput(i, out)
	}

	return nil
}

// topKVJP adds the gradient of each value to the element that it came from.
func topKVJP(c *call) []node {
	if len(c.Out) < 2 {
		return c.Fail("it needs its output of indices")
	}
	return []node{addAt(ZerosLike(c.X(0)), c.Attrs.Int("axis", -1), c.Out[1], c.G())}
}

// itsOwnGradient defines a linear operator whose gradient is the operator on the gradient of the output.
func itsOwnGradient(kind string, inputs int, attrs string) def {
	return def{Kind: kind, MinInputs: inputs, Attrs: attrs, Infer: sameShape, VJP: each(func(c *call) node {
		return apply(kind, c.Attrs, c.G(), c.X(1))
	})}
}
