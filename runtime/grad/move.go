package grad

import (
	"math"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

func floats(v []float32) *tensor.Tensor { return tensor.Of(v, len(v)) }

func reshapeBack(c *Call) []node { return only(c.G().ReshapeLike(c.X(0))) }

func ruleTranspose(c *Call) []node {
	if c.X(0).Rank() < 0 {
		if _, ok := c.Op.Attrs.Ints("perm"); !ok {
			return only(c.G().Graph().Apply(graph.Standard, "Transpose", nil, c.G()))
		}
	}
	p := c.Op.Perm()
	back := make([]int, len(p))
	for i, a := range p {
		back[a] = i
	}
	return only(c.G().Transpose(back...))
}

// ruleTile sums over the repeats: [r1*d1, ...] is seen as [r1, d1, ...].
func ruleTile(c *Call) []node {
	reps := c.X(1).Ints()
	x := c.X(0)
	if len(reps) != x.Rank() {
		return c.Fail("the repeats are not known")
	}
	var sizes, axes []int
	for i, r := range reps {
		d := x.Shape()[i]
		if !r.Static() || !d.Static() {
			return c.Fail("shape %v with repeats %v is not static", x.Shape(), graph.Shape(reps))
		}
		axes = append(axes, len(sizes))
		sizes = append(sizes, r.N, d.N)
	}
	return only(c.G().Reshape(sizes...).Sum(axes...))
}

func ruleConcat(c *Call) []node {
	out := make([]node, len(c.Op.In))
	axis := c.Op.Attrs.Int("axis", 0)
	g := c.G().Graph()
	var at node
	off, static := 0, true
	for i, x := range c.Op.In {
		if x.Rank() < 0 {
			return c.Fail("the rank of input %d is not known", i)
		}
		a, err := graph.Axis(axis, x.Rank())
		if err != nil {
			return c.Fail("%v", err)
		}
		d := x.Shape()[a]
		if static && d.Static() {
			if c.Need(i) {
				out[i] = c.G().Slice(a, off, off+d.N)
			}
			off += d.N
			continue
		}
		if static {
			static, at = false, g.Ints(off)
		}
		end := at.Add(x.ShapeOf().Gather(0, g.Ints(a)))
		if c.Need(i) {
			out[i] = g.Apply(graph.Standard, "Slice", nil, c.G(), at, end, g.Ints(a))
		}
		at = end
	}
	return out
}

func ruleSplit(c *Call) []node {
	parts := make([]node, len(c.Op.Out))
	for i, o := range c.Op.Out {
		parts[i] = c.DY[i]
		if !parts[i].OK() {
			parts[i] = o.Mul(o.ScalarLike(0))
		}
	}
	return only(graph.Concat(c.Op.Attrs.Int("axis", 0), parts...))
}

// ruleSlice pads the gradient with zeros where the slice starts and ends are known, and scatters it elsewhere.
func ruleSlice(c *Call) []node {
	x := c.X(0)
	starts, ok1 := known(c.X(1))
	ends, ok2 := known(c.X(2))
	axes, ok3 := known(c.X(3))
	steps, ok4 := known(c.X(4))
	if axes == nil {
		for i := range starts {
			axes = append(axes, i)
		}
	}
	if !ok1 || !ok2 || !ok3 || !ok4 || x.Rank() < 0 {
		return c.Fail("start, end, axes and step must be known when the graph is built")
	}
	g := x.Graph()
	before, after := make([]node, x.Rank()), make([]node, x.Rank())
	for i := range before {
		before[i], after[i] = g.Ints(0), g.Ints(0)
	}
	for i, a := range axes {
		a, err := graph.Axis(a, x.Rank())
		if err != nil {
			return c.Fail("%v", err)
		}
		if steps != nil && steps[i] != 1 {
			return c.Fail("step %d is not supported", steps[i])
		}
		size, d := x.ShapeOf().Gather(0, g.Ints(a)), x.Shape()[a]
		if d.Static() {
			size = g.Ints(d.N)
		}
		before[a] = g.Ints(starts[i])
		if starts[i] < 0 {
			before[a] = size.Add(g.Ints(starts[i]))
		} else if d.Static() {
			before[a] = g.Ints(min(starts[i], d.N))
		}
		out := c.Y().ShapeOf().Gather(0, g.Ints(a))
		if o := c.Y().Shape()[a]; o.Static() {
			out = g.Ints(o.N)
		}
		after[a] = size.Sub(before[a]).Sub(out)
		if v := size.Ints(); len(v) == 1 && v[0].Static() && before[a].Ints() != nil && out.Ints() != nil {
			n := v[0].N - before[a].Ints()[0].N - out.Ints()[0].N
			after[a] = g.Ints(n)
		}
		if ends[i] >= math.MaxInt32 {
			after[a] = g.Ints(0)
		}
	}
	pads := graph.Concat(0, append(before, after...)...)
	if v, ok := known(pads); ok {
		pads = g.Ints(v...)
	}
	return only(g.Apply(graph.Standard, "Pad", nil, c.G(), pads))
}

func known(n node) ([]int, bool) {
	if !n.OK() {
		return nil, true
	}
	if n.Ints() == nil {
		return nil, false
	}
	out := []int{}
	for _, d := range n.Ints() {
		if !d.Static() {
			return nil, false
		}
		out = append(out, d.N)
	}
	return out, true
}

func rulePad(c *Call) []node {
	if m := c.Op.Attrs.Str("mode", "constant"); m != "constant" {
		return c.Fail("mode %s is not supported", m)
	}
	pads, ok := known(c.X(1))
	axes, ok2 := known(c.X(3))
	if !ok || !ok2 || c.X(0).Rank() < 0 {
		return c.Fail("the pads must be known when the graph is built")
	}
	if axes == nil {
		for i := range c.X(0).Rank() {
			axes = append(axes, i)
		}
	}
	d := c.G()
	for i, a := range axes {
		lo, hi := pads[i], pads[i+len(axes)]
		if lo < 0 || hi < 0 {
			return c.Fail("negative pads are not supported")
		}
		if lo == 0 && hi == 0 {
			continue
		}
		end := math.MaxInt64
		if hi > 0 {
			end = -hi
		}
		d = d.Slice(a, lo, end)
	}
	return only(d)
}

func zerosLike(x node) node {
	g := x.Graph()
	if x.DType() == graph.Float {
		return g.Apply(graph.Standard, "ConstantOfShape", nil, x.ShapeOf())
	}
	return x.Mul(x.ScalarLike(0))
}

func scatterAdd(x, index, g node) node {
	return x.Graph().Apply(graph.Standard, "ScatterND", graph.Attrs{"reduction": "add"}, zerosLike(x), index, g)
}

// ruleGather adds each gradient row to the row it was read from, with the gathered axis moved to the front.
func ruleGather(c *Call) []node {
	x, idx := c.X(0), c.X(1)
	if x.Rank() < 0 || idx.Rank() < 0 {
		return c.Fail("the ranks of %v and %v are not known", x, idx)
	}
	a, err := graph.Axis(c.Op.Attrs.Int("axis", 0), x.Rank())
	if err != nil {
		return c.Fail("%v", err)
	}
	if idx.Rank() == 0 && len(idx.Ints()) == 1 && idx.Ints()[0].Static() && idx.Ints()[0].N >= 0 && x.Shape()[a].Static() {
		i := idx.Ints()[0].N // one slice, as exporters pick the class token
		pads := make([]int, 2*x.Rank())
		pads[a], pads[a+x.Rank()] = i, x.Shape()[a].N-i-1
		return only(x.Graph().Apply(graph.Standard, "Pad", nil, c.G().Unsqueeze(a), x.Graph().Ints(pads...)))
	}
	if a == 0 {
		return only(scatterAdd(x, idx.Unsqueeze(-1), c.G()))
	}
	// x' has axis a in front, dy' its index axes.
	front := []int{a}
	for i := range x.Rank() {
		if i != a {
			front = append(front, i)
		}
	}
	var perm []int
	for i := range idx.Rank() {
		perm = append(perm, a+i)
	}
	for i := range c.G().Rank() {
		if i < a || i >= a+idx.Rank() {
			perm = append(perm, i)
		}
	}
	back := make([]int, len(front))
	for i, f := range front {
		back[f] = i
	}
	d := scatterAdd(x.Transpose(front...), idx.Unsqueeze(-1), c.G().Transpose(perm...))
	return only(d.Transpose(back...))
}

func ruleGatherND(c *Call) []node {
	if c.Op.Attrs.Int("batch_dims", 0) != 0 {
		return c.Fail("batch dimensions are not supported")
	}
	return only(scatterAdd(c.X(0), c.X(1), c.G()))
}

func ruleGatherElements(c *Call) []node {
	x := c.X(0)
	return only(x.Graph().Apply(graph.Standard, "ScatterElements",
		graph.Attrs{"axis": c.Op.Attrs.Int("axis", 0), "reduction": "add"}, zerosLike(x), c.X(1), c.G()))
}

func ruleScatterND(c *Call) []node {
	g, idx := c.G(), c.X(1)
	out := make([]node, 3)
	mode := c.Op.Attrs.Str("reduction", "none")
	if mode != "none" && mode != "add" {
		return c.Fail("reduction %s is not supported", mode)
	}
	if c.Need(2) {
		out[2] = g.Graph().Apply(graph.Standard, "GatherND", nil, g, idx)
	}
	if c.Need(0) {
		out[0] = g
		if mode == "none" {
			zero := c.X(2).Mul(c.X(2).ScalarLike(0))
			out[0] = g.Graph().Apply(graph.Standard, "ScatterND", nil, g, idx, zero)
		}
	}
	return out
}

func ruleTrilu(c *Call) []node {
	return only(c.G().Graph().Apply(graph.Standard, "Trilu", c.Op.Attrs, c.G(), c.X(1)))
}

// spread undoes a reduction's loss of axes: g gets size 1 where the reduction took an axis away.
func spread(c *Call, g node) (node, bool) {
	if c.Op.Attrs.Int("keepdims", 1) == 1 {
		return g, true
	}
	axes, ok := c.Op.Attrs.Ints("axes")
	if !ok && c.X(1).OK() {
		if axes, ok = known(c.X(1)); !ok {
			return g, false
		}
		ok = true
	}
	if !ok {
		if c.X(0).Rank() < 0 {
			return g, false
		}
		for i := range c.X(0).Rank() {
			axes = append(axes, i)
		}
	}
	if len(axes) == 0 {
		return g, true
	}
	axes = slices.Clone(axes)
	for i, a := range axes {
		if a < 0 {
			axes[i] = a + c.X(0).Rank()
		}
	}
	slices.Sort(axes)
	return g.Unsqueeze(axes...), true
}

// count is the number of elements that each element of the reduced g stands for.
func count(x, g node) node {
	xs, gs := x.Shape().Size(), g.Shape().Size()
	if x.Shape().Known() && g.Shape().Known() {
		if q, ok := xs.Div(gs); ok && q.Static() {
			return x.ScalarLike(float64(q.N))
		}
	}
	gr := x.Graph()
	n := gr.Apply(graph.Standard, "Size", nil, x).Cast(x.DType())
	return n.Div(gr.Apply(graph.Standard, "Size", nil, g).Cast(x.DType()))
}

func expandLike(g, x node) node {
	if s, ok := x.Shape().Ints(); ok {
		return g.Expand(s...)
	}
	return g.Graph().Apply(graph.Standard, "Expand", nil, g, x.ShapeOf())
}
