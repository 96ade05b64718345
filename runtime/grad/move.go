package grad

import (
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
	x, g := c.X(0), c.G().Graph()
	if x.Rank() < 0 {
		return c.Fail("the rank of its input is not known")
	}
	var sizes []node
	var axes []int
	for i := range x.Rank() {
		axes = append(axes, len(sizes))
		sizes = append(sizes, c.X(1).Gather(0, g.Ints(i)), sizeOf(x, i))
	}
	if len(axes) == 0 {
		return only(c.G())
	}
	return only(reshape(c.G(), vector(sizes...)).Sum(axes...))
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
		end := at.Add(sizeOf(x, a))
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
			parts[i] = zerosLike(o)
		}
	}
	return only(graph.Concat(c.Op.Attrs.Int("axis", 0), parts...))
}

// ruleGather adds each gradient row to the row it was read from.
func ruleGather(c *Call) []node {
	x, idx := c.X(0), c.X(1)
	if x.Rank() < 0 || idx.Rank() < 0 {
		return c.Fail("the ranks of %v and %v are not known", x, idx)
	}
	a, err := graph.Axis(c.Op.Attrs.Int("axis", 0), x.Rank())
	if err != nil {
		return c.Fail("%v", err)
	}
	if idx.Rank() == 0 && len(idx.Ints()) == 1 && idx.Ints()[0].Static() && idx.Ints()[0].N >= 0 &&
		x.Shape()[a].Static() {
		i := idx.Ints()[0].N // one slice, as exporters pick the class token
		pads := make([]int, 2*x.Rank())
		pads[a], pads[a+x.Rank()] = i, x.Shape()[a].N-i-1
		return only(x.Graph().Apply(graph.Standard, "Pad", nil, c.G().Unsqueeze(a), x.Graph().Ints(pads...)))
	}
	return only(scatterAxis(c.G(), sizeOf(x, a), a, idx))
}

// scatterAxis undoes a Gather on an axis: the index axes of g, which start at axis a, become one axis of the given
// size, each entry of g added at the place it was read from.
func scatterAxis(g, size node, a int, idx node) node {
	n := idx.Rank()
	if n < 0 || g.Rank() < 0 {
		return g.Graph().Fail("the ranks of %v and %v are not known", g, idx)
	}
	var perm, back []int // index axes to the front; scattered axis to its place
	for i := range n {
		perm = append(perm, a+i)
	}
	for i := range g.Rank() {
		if i < a || i >= a+n {
			perm = append(perm, i)
		}
	}
	for i := range g.Rank() - n + 1 {
		switch {
		case i < a:
			back = append(back, i+1)
		case i == a:
			back = append(back, 0)
		default:
			back = append(back, i)
		}
	}
	if a > 0 {
		g = g.Transpose(perm...)
	}
	rows, shape := []node{g.Graph().Ints(-1)}, []node{size}
	for i := n; i < g.Rank(); i++ {
		rows, shape = append(rows, sizeOf(g, i)), append(shape, sizeOf(g, i))
	}
	if n != 1 {
		g = reshape(g, vector(rows...))
	}
	column := []int{-1}
	for range g.Rank() - 1 {
		column = append(column, 1)
	}
	// Not ScatterND: with several threads ONNX Runtime's loses sums when an index is repeated.
	d := g.Graph().Apply(graph.Standard, "ScatterElements", graph.Attrs{"axis": 0, "reduction": "add"},
		zeros(g, vector(shape...)), expandLike(idx.Reshape(column...), g), g)
	if a > 0 {
		d = d.Transpose(back...)
	}
	return d
}

func ruleGatherND(c *Call) []node {
	if c.Op.Attrs.Int("batch_dims", 0) != 0 {
		return c.Fail("batch dimensions are not supported")
	}
	x, idx, g := c.X(0), c.X(1), c.X(0).Graph()
	if x.Rank() < 0 || idx.Rank() < 1 || !idx.Shape()[idx.Rank()-1].Static() {
		return c.Fail("the ranks of %v and %v must be known", x, idx)
	}
	// The axes that an index tuple reaches are seen as one, which ruleGather's scatter then serves.
	var position node
	reach := idx.Shape()[idx.Rank()-1].N
	size := g.Ints(1)
	for i := range reach {
		n := sizeOf(x, i)
		at := idx.Gather(-1, g.Scalar64(i))
		at = g.Apply(graph.Standard, "Mod", nil, at.Add(n), n) // an index may count from the end
		if size = size.Mul(n); i == 0 {
			position = at
		} else {
			position = position.Mul(n).Add(at)
		}
	}
	if !position.OK() {
		return c.Fail("the index tuples are empty")
	}
	return only(scatterAxis(c.G(), size, 0, position).ReshapeLike(x))
}

func ruleGatherElements(c *Call) []node {
	x := c.X(0)
	return only(x.Graph().Apply(graph.Standard, "ScatterElements",
		graph.Attrs{"axis": c.Op.Attrs.Int("axis", 0), "reduction": "add"}, zerosLike(x), c.X(1), c.G()))
}

func ruleScatterND(c *Call) []node { return scatterBack(c, "ScatterND", "GatherND", nil) }

func ruleScatterElements(c *Call) []node {
	return scatterBack(c, "ScatterElements", "GatherElements", graph.Attrs{"axis": c.Op.Attrs.Int("axis", 0)})
}

// scatterBack reads the gradient of the updates where they were written; what they replaced gets none.
func scatterBack(c *Call, scatter, gather string, at graph.Attrs) []node {
	g, idx := c.G(), c.X(1)
	out := make([]node, 3)
	mode := c.Op.Attrs.Str("reduction", "none")
	if mode != "none" && mode != "add" {
		return c.Fail("reduction %s is not supported", mode)
	}
	if c.Need(2) {
		out[2] = g.Graph().Apply(graph.Standard, gather, at, g, idx)
	}
	if c.Need(0) {
		out[0] = g
		if mode == "none" {
			out[0] = g.Graph().Apply(graph.Standard, scatter, at, g, idx, zerosLike(c.X(2)))
		}
	}
	return out
}

// ruleCumSum sums from the other end.
func ruleCumSum(c *Call) []node {
	at := graph.Attrs{"exclusive": c.Op.Attrs.Int("exclusive", 0), "reverse": 1 - c.Op.Attrs.Int("reverse", 0)}
	return only(c.G().Graph().Apply(graph.Standard, "CumSum", at, c.G(), c.X(1)))
}

func ruleTrilu(c *Call) []node {
	return only(c.G().Graph().Apply(graph.Standard, "Trilu", c.Op.Attrs, c.G(), c.X(1)))
}
