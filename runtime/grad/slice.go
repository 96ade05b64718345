package grad

import (
	"math"

	"promptfed/runtime/graph"
)

// ruleSlice puts the gradient between zeros where step 1 and known ends allow it; elsewhere, axis by axis, it is added
// at the positions that the slice read, which are a slice of 0, 1, 2, ...
func ruleSlice(c *Call) []node {
	x, g := c.X(0), c.G().Graph()
	axes, ok := known(c.X(3))
	if !ok || x.Rank() < 0 {
		return c.Fail("the axes and the rank of its input must be known when the graph is built")
	}
	if axes == nil {
		n := c.X(1).Shape()
		if len(n) != 1 || !n[0].Static() {
			return c.Fail("how many axes it cuts must be known when the graph is built")
		}
		for i := range n[0].N {
			axes = append(axes, i)
		}
	}
	before, after := make([]int, x.Rank()), make([]int, x.Rank())
	var hard []int // entries of axes that padding does not do
	for i, axis := range axes {
		a, err := graph.Axis(axis, x.Rank())
		if err != nil {
			return c.Fail("%v", err)
		}
		lo, hi, ok := margins(c, i, x.Shape()[a])
		if !ok {
			hard = append(hard, i)
			continue
		}
		before[a], after[a] = lo, hi
	}
	d := c.G()
	if len(hard) < len(axes) {
		d = g.Apply(graph.Standard, "Pad", nil, d, g.Ints(append(before, after...)...))
	}
	for _, i := range hard {
		a, _ := graph.Axis(axes[i], x.Rank())
		positions := g.Apply(graph.Standard, "Range", nil, g.Scalar64(0), sizeOf(x, a).Squeeze(0), g.Scalar64(1))
		in := []node{positions, c.X(1), c.X(2), g.Ints(0)}
		if c.X(4).OK() {
			in = append(in, c.X(4))
		}
		for k := range in {
			if k == 1 || k == 2 || k == 4 {
				in[k] = in[k].Gather(0, g.Ints(i)).Cast(graph.Int64)
			}
		}
		d = scatterAxis(d, sizeOf(x, a), a, g.Apply(graph.Standard, "Slice", nil, in...))
	}
	return only(d)
}

// margins is how many entries of an axis of size d a slice of step 1 leaves out at both ends, where that is the same
// for every size that a symbolic axis may have; such an axis is trusted to be long enough.
func margins(c *Call, i int, d graph.Dim) (before, after int, ok bool) {
	at := func(n node) (int, bool) {
		v := n.Ints()
		if i >= len(v) || !v[i].Static() {
			return 0, false
		}
		return v[i].N, true
	}
	start, ok1 := at(c.X(1))
	end, ok2 := at(c.X(2))
	step, ok3 := 1, true
	if c.X(4).OK() {
		step, ok3 = at(c.X(4))
	}
	switch {
	case !ok1 || !ok2 || !ok3 || step != 1:
		return 0, 0, false
	case d.Static():
		clamp := func(v int) int {
			if v < 0 {
				v += d.N
			}
			return min(max(v, 0), d.N)
		}
		lo := clamp(start)
		return lo, d.N - max(lo, clamp(end)), true
	case start >= 0 && end >= math.MaxInt32:
		return start, 0, true
	case start >= 0 && end < 0:
		return start, -end, true
	}
	return 0, 0, false
}

// rulePad cuts the padding off again.
func rulePad(c *Call) []node {
	switch m := c.Op.Attrs.Str("mode", "constant"); m {
	case "constant":
	case "reflect", "edge", "wrap":
		return padByIndex(c)
	default:
		return c.Fail("mode %s is not supported", m)
	}
	back := c.X(1).Neg() // a negative pad cuts, so the gradient gets zeros there
	if v, ok := known(c.X(1)); ok {
		for i := range v {
			v[i] = -v[i]
		}
		back = c.X(1).Graph().Ints(v...)
	}
	return only(c.G().Graph().Apply(graph.Standard, "Pad", nil, c.G(), back, node{}, c.X(3)))
}
