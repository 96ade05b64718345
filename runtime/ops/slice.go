package ops

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		def{Kind: "Slice", MinInputs: 3, Infer: ranked(inferSlice), VJP: sliceVJP},
		def{Kind: "Pad", MinInputs: 1, Attrs: "mode string", Infer: ranked(inferPad), VJP: padVJP},
	)
}

func inferSlice(inference *infer, out graph.Shape) error {
	start, ok1 := inference.X(1).StaticInts()
	end, ok2 := inference.X(2).StaticInts()
	axes, ok3 := inference.X(3).StaticInts()

	step, ok4 := inference.X(4).StaticInts()
	if !ok1 || !ok2 || !ok3 || !ok4 {
		for i := range out { // unknown sizes of every axis that may be cut
			if axes == nil || slices.Contains(axes, i) || slices.Contains(axes, i-len(out)) {
				out[i] = inference.Unknown("slice", i)
			}
		}
		if known := inference.X(2).Ints(); ok1 && ok3 && ok4 && step == nil && len(start) == 1 && len(known) == 1 &&
			start[0] == 0 {
			if a, err := graph.Axis(append(axes, 0)[0], len(out)); err == nil {
				out[a] = known[0]
			}
		}
		return inference.Set(out)
	}

	if n := len(start); len(end) != n || axes != nil && len(axes) != n || step != nil && len(step) != n {
		return fmt.Errorf("%d starts, %d ends, %d axes, %d steps", n, len(end), len(axes), len(step))
	}

	cut, err := resolve(axes, len(start), len(out))
	if err != nil {
		return err
	}

	content, known := contentOf(inference.In[0])
	for i := range start {
		axis, st := cut[i], 1
		if step != nil {
			st = step[i]
		}

		if st == 0 {
			return fmt.Errorf("step 0")
		}

		out[axis] = sliceLen(inference, axis, out[axis], start[i], end[i], st)
		if known {
			from, _ := clampRange(content.shape[axis], start[i], end[i], st)
			content = content.sliced(axis, from, st, out[axis].N)
		}
	}

	inference.SetContent(content.cells)
	return inference.Set(out)
}

// sliceLen returns the number of elements of start:end:step on an axis.
func sliceLen(o *infer, axis int, dim graph.Dim, start, end, step int) graph.Dim {
	switch {
	case dim.Static():
		i, j := clampRange(dim.N, start, end, step)
		return graph.StaticDim(rangeLen(i, j, step))
	case step != 1:
	case start >= 0 && end == start+1:
		return graph.StaticDim(1) // assumed to be inside the axis
	case start >= 0 && end < 0:
		return dim.Sub(graph.StaticDim(start - end))
	case start >= 0 && end >= math.MaxInt32:
		return dim.Sub(graph.StaticDim(start))
	case start == -1 && end >= math.MaxInt32:
		return graph.StaticDim(1)
	}

	return o.Unknown("slice", axis)
}

func clampRange(size, start, end, step int) (int, int) {
	fix := func(v, lo, hi int) int {
		if v < 0 {
			v += size
		}
		return min(max(v, lo), hi)
	}

	if step > 0 {
		return fix(start, 0, size), fix(end, 0, size)
	}

	return fix(start, 0, size-1), fix(end, -1, size-1)
}

func rangeLen(i, j, step int) int {
	if step > 0 && j > i {
		return (j-i-1)/step + 1
	}
	if step < 0 && i > j {
		return (j-i+1)/step + 1
	}
	return 0
}

// sliceVJP pads the gradient with zeros where step 1 and known ends permit it. On other axes it adds the gradient at
// the positions that the slice read, which are a slice of 0, 1, 2, ...
func sliceVJP(backward *call) []node {
	data, g := backward.X(0), backward.G().Graph()
	n := backward.X(1).Shape()
	if len(n) != 1 || !n[0].Static() {
		return backward.Fail("the number of sliced axes must be known when the graph is built")
	}

	axes, err := cutAxes(backward, n[0].N)
	if err != nil {
		return backward.Fail("%w", err)
	}

	before, after := make([]int, data.Rank()), make([]int, data.Rank())
	var hard []int // entries of axes for which padding does not work
	for i, a := range axes {
		lo, hi, ok := margins(backward, i, data.Shape()[a])
		if !ok {
			hard = append(hard, i)
			continue
		}
		before[a], after[a] = lo, hi
	}

	gradient := backward.G()
	if len(hard) < len(axes) {
		gradient = apply("Pad", nil, gradient, g.Ints(append(before, after...)...))
	}

	for _, i := range hard {
		a := axes[i]
		in := []node{positions(data, a), backward.X(1), backward.X(2), g.Ints(0)}
		if backward.X(4).OK() {
			in = append(in, backward.X(4))
		}
		for k := range in {
			if k == 1 || k == 2 || k == 4 {
				in[k] = in[k].Gather(0, g.Ints(i)).Cast(graph.Int64)
			}
		}
		gradient = scatterAxis(gradient, sizeOf(data, a), a, apply("Slice", nil, in...))
	}

	return []node{gradient}
}

// cutAxes returns the axes of a Slice or Pad; without its fourth input they are the first n.
func cutAxes(c *call, n int) ([]int, error) {
	axes, ok := c.X(3).StaticInts()
	if rank := c.X(0).Rank(); ok && rank >= 0 {
		return resolve(axes, n, rank)
	}
	return nil, errors.New("the axes and the rank of its input must be known when the graph is built")
}

func positions(x node, axis int) node {
	g := x.Graph()
	return apply("Range", nil, g.Scalar64(0), sizeOf(x, axis).Squeeze(0), g.Scalar64(1))
}

// margins returns the number of entries that a slice of step 1 omits at both ends of an axis of size dim, if it is the
// same for every value of a symbolic size. Such an axis is assumed to be long enough.
func margins(backward *call, i int, dim graph.Dim) (before, after int, ok bool) {
	at := func(n node) (int, bool) {
		v := n.Ints()
		if i >= len(v) || !v[i].Static() {
			return 0, false
		}
		return v[i].N, true
	}

	start, ok1 := at(backward.X(1))
	end, ok2 := at(backward.X(2))
	step, ok3 := 1, true
	if backward.X(4).OK() {
		step, ok3 = at(backward.X(4))
	}

	switch {
	case !ok1 || !ok2 || !ok3 || step != 1:
		return 0, 0, false
	case dim.Static():
		lo := clampAxis(start, dim.N)
		return lo, dim.N - max(lo, clampAxis(end, dim.N)), true
	case start >= 0 && end >= math.MaxInt32:
		return start, 0, true
	case start >= 0 && end < 0:
		return start, -end, true
	}

	return 0, 0, false
}

func inferPad(inference *infer, out graph.Shape) error {
	pads, ok1 := inference.X(1).StaticInts()
	axes, ok3 := inference.X(3).StaticInts()
	if !ok1 || !ok3 {
		return nil
	}

	axes, err := resolve(axes, len(out), len(out))
	if err != nil {
		return err
	}

	if len(pads) != 2*len(axes) {
		return fmt.Errorf("%d pads for %d axes", len(pads), len(axes))
	}

	for i, a := range axes {
		out[a] = out[a].Add(graph.StaticDim(pads[i] + pads[i+len(axes)]))
	}

	return inference.Set(out)
}

func padVJP(backward *call) []node {
	switch m := backward.Attrs.Str("mode", "constant"); m {
	case "constant":
	case "reflect", "edge", "wrap":
		return padByIndexVJP(backward)
	default:
		return backward.Fail("mode %s is not supported", m)
	}

	back := backward.X(1).Neg() // a negative pad removes elements, which get zeros in the gradient
	if v, ok := backward.X(1).StaticInts(); ok {
		for i := range v {
			v[i] = -v[i]
		}
		back = backward.X(1).Graph().Ints(v...)
	}

	return []node{apply("Pad", nil, backward.G(), back, node{}, backward.X(3))}
}

// padByIndexVJP adds the gradient of each element of a padded axis to the element that it copies. The same padding of
// 0, 1, 2, ... returns these positions.
func padByIndexVJP(backward *call) []node {
	data, g := backward.X(0), backward.X(0).Graph()
	axes, err := cutAxes(backward, data.Rank())
	if err != nil {
		return backward.Fail("%w", err)
	}

	d := backward.G()
	for i, a := range axes {
		if p, ok := backward.X(1).StaticInts(); ok && len(p) == 2*len(axes) && p[i] == 0 && p[i+len(axes)] == 0 {
			continue
		}
		positions := positions(data, a)
		pads := backward.X(1).Gather(0, g.Ints(i, i+len(axes))).Cast(graph.Int64)
		d = scatterAxis(d, sizeOf(data, a), a, apply("Pad", graph.Attrs{"mode": backward.Attrs["mode"]}, positions,
			pads))
	}

	return []node{d}
}
