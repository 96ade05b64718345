package grad

import (
	"slices"
	"strings"

	"promptfed/runtime/graph"
)

func fused(a, b node, transA, transB int, alpha float32) node {
	if transA == 0 && transB == 0 && alpha == 1 {
		return a.MatMul(b)
	}
	at := graph.Attrs{"transA": transA, "transB": transB}
	if alpha != 1 {
		at["alpha"] = alpha
	}
	return a.Graph().Apply(graph.Microsoft, "FusedMatMul", at, a, b)
}

// ruleMatMul covers MatMul and FusedMatMul: y = alpha op(a) op(b), where op may transpose the last two axes.
func ruleMatMul(c *Call) []node {
	at := c.Op.Attrs
	if at.Int("transBatchA", 0) != 0 || at.Int("transBatchB", 0) != 0 {
		return c.Fail("transposed batches are not supported")
	}
	ta, tb, alpha := at.Int("transA", 0), at.Int("transB", 0), at.Float("alpha", 1)
	a, b, g := c.X(0), c.X(1), c.G()
	if a.Rank() < 0 || b.Rank() < 0 {
		return c.Fail("the ranks of %v and %v are not known", a, b)
	}
	if a.Rank() == 1 && b.Rank() == 1 {
		g = g.Reshape(1, 1)
	} else if a.Rank() == 1 {
		g = g.Unsqueeze(-2)
	} else if b.Rank() == 1 {
		g = g.Unsqueeze(-1)
	}
	if a.Rank() == 1 {
		a = a.Unsqueeze(0)
	}
	if b.Rank() == 1 {
		b = b.Unsqueeze(1)
	}
	out := make([]node, 2)
	if c.Need(0) {
		if ta == 0 {
			out[0] = fused(g, b, 0, 1-tb, alpha)
		} else {
			out[0] = fused(b, g, tb, 1, alpha)
		}
		if c.X(0).Rank() == 1 {
			out[0] = fit(out[0], a).ReshapeLike(c.X(0))
		}
	}
	if c.Need(1) {
		out[1] = gradB(a, b, g, ta, tb, alpha)
		if c.X(1).Rank() == 1 {
			out[1] = fit(out[1], b).ReshapeLike(c.X(1))
		}
	}
	return out
}

func gradB(a, b, g node, ta, tb int, alpha float32) node {
	if b.Rank() == 2 && a.Rank() > 2 && ta == 0 { // one product over all rows instead of a sum of products
		ka, kg := a.Shape()[a.Rank()-1], g.Shape()[g.Rank()-1]
		if ka.Static() && kg.Static() {
			a, g = a.Reshape(-1, ka.N), g.Reshape(-1, kg.N)
		}
	}
	if tb == 0 {
		return fused(a, g, 1-ta, 0, alpha)
	}
	return fused(g, a, 1, ta, alpha)
}

func ruleGemm(c *Call) []node {
	at := c.Op.Attrs
	ta, tb := at.Int("transA", 0), at.Int("transB", 0)
	alpha, beta := at.Float("alpha", 1), at.Float("beta", 1)
	a, b, g := c.X(0), c.X(1), c.G()
	out := make([]node, len(c.Op.In))
	if c.Need(0) {
		if ta == 0 {
			out[0] = fused(g, b, 0, 1-tb, alpha)
		} else {
			out[0] = fused(b, g, tb, 1, alpha)
		}
	}
	if c.Need(1) {
		out[1] = gradB(a, b, g, ta, tb, alpha)
	}
	if c.Need(2) {
		out[2] = g.Scale(float64(beta))
	}
	return out
}

// ruleEinsum covers two operands without repeated or ellipsis indices: the gradient of one operand is the einsum of
// the output's gradient with the other one.
func ruleEinsum(c *Call) []node {
	eq := strings.ReplaceAll(c.Op.Attrs.Str("equation", ""), " ", "")
	lhs, rhs, ok := strings.Cut(eq, "->")
	terms := strings.Split(lhs, ",")
	if !ok || len(terms) != 2 || strings.Contains(eq, ".") || repeats(terms[0]) || repeats(terms[1]) {
		return c.Fail("equation %q: only two operands with an explicit output and no repeated index are supported", eq)
	}
	out := make([]node, 2)
	for i := range out {
		if !c.Need(i) {
			continue
		}
		have := terms[1-i] + rhs
		for _, r := range terms[i] {
			if !strings.ContainsRune(have, r) {
				return c.Fail("equation %q sums index %c of one operand alone", eq, r)
			}
		}
		out[i] = c.G().Graph().Apply(graph.Standard, "Einsum",
			graph.Attrs{"equation": rhs + "," + terms[1-i] + "->" + terms[i]}, c.G(), c.X(1-i))
	}
	return out
}

func repeats(term string) bool {
	r := []byte(term)
	slices.Sort(r)
	return len(slices.Compact(r)) != len(term)
}

// ruleConv gives the gradient of the data by a transposed convolution with the same weights, and that of the weights,
// where asked for, for ungrouped two-dimensional convolutions. Padding must be symmetric in what it leaves over.
func ruleConv(c *Call) []node {
	k, p, s, d, err := c.Op.Window()
	if err != nil {
		return c.Fail("%v", err)
	}
	x, w, g := c.X(0), c.X(1), c.G()
	out := make([]node, len(c.Op.In))
	if c.Need(0) {
		extra := make([]int, len(k))
		for i := range k {
			in := x.Shape()[2+i]
			if s[i] == 1 {
				continue
			}
			if !in.Static() {
				return c.Fail("the image size is not known and the stride is %d; export with a fixed size", s[i])
			}
			extra[i] = (in.N + p[i] + p[i+len(k)] - d[i]*(k[i]-1) - 1) % s[i]
		}
		out[0] = x.Graph().Apply(graph.Standard, "ConvTranspose", graph.Attrs{"pads": p, "strides": s, "dilations": d,
			"kernel_shape": k, "output_padding": extra, "group": c.Op.Attrs.Int("group", 1)}, g, w)
	}
	if c.Need(1) {
		if c.Op.Attrs.Int("group", 1) != 1 {
			return c.Fail("the gradient of grouped weights is not supported")
		}
		// dw is the convolution of x with dy, the batch taking the channels' place and stride and dilation swapped.
		t := x.Transpose(swap01(x.Rank())...)
		dw := x.Graph().Apply(graph.Standard, "Conv", graph.Attrs{"pads": p, "strides": d, "dilations": s},
			t, g.Transpose(swap01(g.Rank())...)).Transpose(swap01(x.Rank())...)
		for i := range k {
			dw = dw.Slice(2+i, 0, k[i])
		}
		out[1] = dw
	}
	if c.Need(2) {
		out[2] = g.Sum(channelsLast(g.Rank())...)
	}
	return out
}

func swap01(rank int) []int {
	p := make([]int, rank)
	for i := range p {
		p[i] = i
	}
	p[0], p[1] = 1, 0
	return p
}

func channelsLast(rank int) []int {
	axes := []int{0}
	for i := 2; i < rank; i++ {
		axes = append(axes, i)
	}
	return axes
}

func ruleConvTranspose(c *Call) []node {
	k, p, s, d, err := c.Op.Window()
	if err != nil {
		return c.Fail("%v", err)
	}
	if c.Need(1) {
		return c.Fail("the gradient of its weights is not supported")
	}
	out := make([]node, len(c.Op.In))
	out[0] = c.G().Graph().Apply(graph.Standard, "Conv", graph.Attrs{"pads": p, "strides": s, "dilations": d,
		"kernel_shape": k, "group": c.Op.Attrs.Int("group", 1)}, c.G(), c.X(1))
	if c.Need(2) {
		out[2] = c.G().Sum(channelsLast(c.G().Rank())...)
	}
	return out
}

// ruleAveragePool covers windows that do not overlap and do not pad, as CLIP's ResNets use: each input gets the share
// of its window.
func ruleAveragePool(c *Call) []node {
	k, p, s, _, err := c.Op.Window()
	if err != nil {
		return c.Fail("%v", err)
	}
	if !slices.Equal(k, s) || slices.ContainsFunc(p, func(v int) bool { return v != 0 }) {
		return c.Fail("kernel %v with stride %v and pads %v: only equal kernel and stride without pads are supported", k, s, p)
	}
	x, g := c.X(0), c.G()
	share := 1.0
	for i := range k {
		in := x.Shape()[2+i]
		if in.Static() && in.N%k[i] != 0 {
			return c.Fail("image size %v is no multiple of the window %v", in, k)
		}
		share /= float64(k[i])
	}
	scales := []float32{1, 1}
	for _, v := range k {
		scales = append(scales, float32(v))
	}
	gr := x.Graph()
	up := gr.Apply(graph.Standard, "Resize", graph.Attrs{"mode": "nearest", "nearest_mode": "floor",
		"coordinate_transformation_mode": "asymmetric"}, g, node{}, gr.Const(floats(scales)))
	return only(up.Scale(share).ReshapeLike(x))
}

func ruleGlobalAveragePool(c *Call) []node {
	x := c.X(0)
	return only(c.G().Div(count(x, c.G())).Graph().Apply(graph.Standard, "Expand", nil, c.G().Div(count(x, c.G())), x.ShapeOf()))
}
