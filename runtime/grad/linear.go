package grad

import (
	"slices"
	"strings"

	"promptfed/runtime/graph"
)

// fused is alpha op(a) op(b) over the last two axes, where op may transpose them. ONNX Runtime's fused form is for
// float32 only.
func fused(a, b node, transA, transB int, alpha float32) node {
	if t := a.DType(); t != graph.Float && t != 0 {
		if transA != 0 {
			a = a.T()
		}
		if transB != 0 {
			b = b.T()
		}
		return a.MatMul(b).Scale(float64(alpha))
	}
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
	ta, tb, alpha := flag(at, "transA"), flag(at, "transB"), at.Float("alpha", 1)
	a, b, g := c.X(0), c.X(1), c.G()
	if a.Rank() < 0 || b.Rank() < 0 {
		return c.Fail("the ranks of %v and %v are not known", a, b)
	}
	if ta != 0 && b.Rank() == 1 && a.Rank() > 1 {
		return c.Fail("a transposed matrix times a vector is not supported")
	}
	if b.Rank() == 1 { // a vector is a matrix of one column or row, and has no transpose
		b, g, tb = b.Unsqueeze(1), g.Unsqueeze(-1), 0
	}
	if a.Rank() == 1 {
		a, g, ta = a.Unsqueeze(0), g.Unsqueeze(-2), 0
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

func flag(at graph.Attrs, name string) int {
	if at.Int(name, 0) != 0 {
		return 1
	}
	return 0
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
	ta, tb := flag(at, "transA"), flag(at, "transB")
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

// ruleEinsum gives the gradient of one operand as the einsum of the output's gradient with the other operands. An index
// that only this operand has was summed away, so its gradient is repeated along it.
func ruleEinsum(c *Call) []node {
	terms, rhs, ok, err := c.Op.Equation()
	if err != nil || !ok || slices.ContainsFunc(terms, repeats) {
		return c.Fail("equation %q: operands of unknown rank, and repeated indices within one, are not supported",
			c.Op.Attrs.Str("equation", ""))
	}
	out := make([]node, len(terms))
	for i := range out {
		if !c.Need(i) {
			continue
		}
		in, have := []node{c.G()}, []string{rhs}
		for j := range terms {
			if j != i {
				in, have = append(in, c.X(j)), append(have, terms[j])
			}
		}
		from, to := strings.Join(have, ","), ""
		var gone []int
		for j, r := range terms[i] {
			if strings.ContainsRune(from, r) {
				to += string(r)
			} else {
				gone = append(gone, j)
			}
		}
		d := c.G().Graph().Apply(graph.Standard, "Einsum", graph.Attrs{"equation": from + "->" + to}, in...)
		if len(gone) > 0 {
			d = expandLike(d.Unsqueeze(gone...), c.X(i))
		}
		out[i] = d
	}
	return out
}

func repeats(term string) bool {
	r := []byte(term)
	slices.Sort(r)
	return len(slices.Compact(r)) != len(term)
}
