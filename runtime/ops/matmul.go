package ops

import (
	"fmt"
	"slices"
	"strings"

	"promptfed/runtime/convert"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

func init() {
	graph.Register(
		def{Kind: "MatMul", MinInputs: 2, Infer: inferMatMul, VJP: matMulVJP},
		def{Domain: graph.Microsoft, Kind: "FusedMatMul", MinInputs: 2, Infer: inferMatMul, VJP: matMulVJP,
			Attrs: "alpha float, transA int, transB int, transBatchA int, transBatchB int"},
		def{Kind: "Gemm", MinInputs: 2, Attrs: "alpha float, beta float, transA int, transB int", Infer: inferGemm,
			VJP: gemmVJP},
		def{Kind: "Einsum", MinInputs: 1, Attrs: "equation string", Infer: inferEinsum, VJP: einsumVJP},
	)
}

func inferMatMul(inference *infer) error {
	a, b := inference.In[0].Shape(), inference.In[1].Shape()
	if a == nil || b == nil {
		return nil
	}

	if len(a) == 0 || len(b) == 0 {
		return fmt.Errorf("a scalar")
	}

	if inference.Attrs.Int("transBatchA", 0) != 0 || inference.Attrs.Int("transBatchB", 0) != 0 {
		return nil
	}

	a, b = slices.Clone(a), slices.Clone(b)
	rowA, colB := len(a) > 1, len(b) > 1
	if !rowA {
		a = append(graph.Shape{graph.StaticDim(1)}, a...)
	}

	if !colB {
		b = append(b, graph.StaticDim(1))
	}

	if inference.Attrs.Int("transA", 0) != 0 && rowA { // ONNX Runtime ignores transA for a vector
		a[len(a)-1], a[len(a)-2] = a[len(a)-2], a[len(a)-1]
	}

	if inference.Attrs.Int("transB", 0) != 0 && colB {
		b[len(b)-1], b[len(b)-2] = b[len(b)-2], b[len(b)-1]
	}

	k, l := a[len(a)-1], b[len(b)-2]
	if k.Static() && l.Static() && k != l {
		return fmt.Errorf("inner sizes %v and %v differ", k, l)
	}

	out, err := graph.Broadcast(a[:len(a)-2], b[:len(b)-2])
	if err != nil {
		return err
	}

	if out = append(graph.Shape{}, out...); rowA {
		out = append(out, a[len(a)-2])
	}

	if colB {
		out = append(out, b[len(b)-1])
	}

	return inference.Set(out)
}

// matMulVJP is the gradient of MatMul and FusedMatMul: y = alpha op(a) op(b), where op may transpose the last two axes.
func matMulVJP(backward *call) []node {
	at := backward.Attrs
	if at.Int("transBatchA", 0) != 0 || at.Int("transBatchB", 0) != 0 {
		return backward.Fail("transposed batches are not supported")
	}

	ta, tb, alpha := flag(at, "transA"), flag(at, "transB"), at.Float("alpha", 1)
	a, b, gradient := backward.X(0), backward.X(1), backward.G()
	if a.Rank() < 0 || b.Rank() < 0 {
		return backward.Fail("the ranks of %v and %v are not known", a, b)
	}

	if ta != 0 && b.Rank() == 1 && a.Rank() > 1 {
		return backward.Fail("a transposed matrix times a vector is not supported")
	}

	if b.Rank() == 1 { // a vector is a matrix of one column or row, without a transpose
		b, gradient, tb = b.Unsqueeze(1), gradient.Unsqueeze(-1), 0
	}

	if a.Rank() == 1 {
		a, gradient, ta = a.Unsqueeze(0), gradient.Unsqueeze(-2), 0
	}

	out := make([]node, 2)
	if backward.NeedsGrad(0) {
		out[0] = gradA(b, gradient, ta, tb, alpha)
		if backward.X(0).Rank() == 1 {
			out[0] = SumTo(out[0], a).ReshapeLike(backward.X(0))
		}
	}

	if backward.NeedsGrad(1) {
		out[1] = gradB(a, b, gradient, ta, tb, alpha)
		if backward.X(1).Rank() == 1 {
			out[1] = SumTo(out[1], b).ReshapeLike(backward.X(1))
		}
	}

	return out
}

// fused returns alpha op(a) op(b) over the last two axes, where op may transpose them. ONNX Runtime's FusedMatMul takes
// only float32.
func fused(a, b node, transA, transB int, alpha float64) node {
	if t := a.DType(); t != graph.Float && t != 0 {
		return product(a, b, transA, transB, alpha)
	}

	if transA == 0 && transB == 0 && alpha == 1 {
		return a.MatMul(b)
	}

	at := graph.Attrs{"transA": graph.Attr(transA), "transB": graph.Attr(transB)}
	if alpha != 1 {
		at["alpha"] = graph.Attr(float32(alpha))
	}

	return a.Graph().Apply(graph.Microsoft, "FusedMatMul", at, a, b)
}

// product is fused in operators of ONNX.
func product(a, b node, transA, transB int, alpha float64) node {
	if transA != 0 {
		a = a.T()
	}

	if transB != 0 {
		b = b.T()
	}

	return a.MatMul(b).MulScalar(alpha)
}

func flag(at graph.Attrs, name string) int {
	if at.Int(name, 0) != 0 {
		return 1
	}
	return 0
}

func gradA(b, g node, ta, tb int, alpha float64) node {
	if ta == 0 {
		return fused(g, b, 0, 1-tb, alpha)
	}
	return fused(b, g, tb, 1, alpha)
}

func gradB(a, b, gradient node, ta, tb int, alpha float64) node {
	if b.Rank() == 2 && a.Rank() > 2 && ta == 0 { // one product over all rows, not a sum of products
		ka, kg := a.Shape()[a.Rank()-1], gradient.Shape()[gradient.Rank()-1]
		if ka.Static() && kg.Static() {
			a, gradient = a.Reshape(-1, ka.N), gradient.Reshape(-1, kg.N)
		}
	}

	if tb == 0 {
		return fused(a, gradient, 1-ta, 0, alpha)
	}

	return fused(gradient, a, 1, ta, alpha)
}

func inferGemm(inference *infer) error {
	a, b := inference.In[0].Shape(), inference.In[1].Shape()
	if a == nil || b == nil {
		return nil
	}

	if len(a) != 2 || len(b) != 2 {
		return fmt.Errorf("ranks %d and %d, both must be 2", len(a), len(b))
	}

	rows, k, l, columns := a[0], a[1], b[0], b[1]
	if inference.Attrs.Int("transA", 0) != 0 {
		rows, k = k, rows
	}

	if inference.Attrs.Int("transB", 0) != 0 {
		l, columns = columns, l
	}

	if k.Static() && l.Static() && k != l {
		return fmt.Errorf("inner sizes %v and %v differ", k, l)
	}

	if c := inference.X(2); c.OK() && c.Shape() != nil {
		if s, err := graph.Broadcast(graph.Shape{rows, columns}, c.Shape()); err != nil || len(s) != 2 {
			return fmt.Errorf("bias %v does not fit [%v,%v]", c.Shape(), rows, columns)
		}
	}

	return inference.Set(graph.Shape{rows, columns})
}

func gemmVJP(c *call) []node {
	at := c.Attrs
	ta, tb := flag(at, "transA"), flag(at, "transB")
	alpha, beta := at.Float("alpha", 1), at.Float("beta", 1)
	a, b, g := c.X(0), c.X(1), c.G()
	return each(func(*call) node { return gradA(b, g, ta, tb, alpha) },
		func(*call) node { return gradB(a, b, g, ta, tb, alpha) }, func(*call) node { return g.MulScalar(beta) })(c)
}

// equation returns the index letters of every operand and of the result of an Einsum. It replaces an ellipsis by
// letters and writes out a result that the equation omits (alphabetical order). ok is false if ranks are not known.
func equation(op *graph.Op) (terms []string, result string, ok bool, err error) {
	lhs, result, given := strings.Cut(strings.ReplaceAll(op.Attrs.Str("equation", ""), " ", ""), "->")
	terms = strings.Split(lhs, ",")
	if len(terms) != len(op.In) {
		return nil, "", false, fmt.Errorf("equation %q for %d operands", op.Attrs.Str("equation", ""), len(op.In))
	}

	const spare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	free := strings.Map(func(r rune) rune {
		if strings.ContainsRune(lhs, r) {
			return -1
		}
		return r
	}, spare)

	longest, extra := 0, make([]int, len(terms))
	for i, t := range terms {
		named := strings.Replace(t, "...", ".", 1)
		if !strings.Contains(named, ".") {
			continue
		}
		n := op.In[i].Rank() - (len(named) - 1)
		switch {
		case op.In[i].Rank() < 0:
			return nil, "", false, nil
		case n < 0 || n > len(free):
			return nil, "", false, fmt.Errorf("%q does not fit shape %v", t, op.In[i].Shape())
		}
		terms[i], extra[i], longest = named, n, max(longest, n)
	}

	for i, n := range extra {
		terms[i] = strings.Replace(terms[i], ".", free[longest-n:longest], 1)
	}

	if given {
		return terms, strings.Replace(result, "...", free[:longest], 1), true, nil
	}

	all := []byte(strings.Join(terms, ""))
	slices.Sort(all)
	for i, r := range all {
		if !strings.ContainsRune(free[:longest], rune(r)) && (i == 0 || all[i-1] != r) && (i+1 == len(all) ||
			all[i+1] != r) {
			result += string(r)
		}
	}

	return terms, free[:longest] + result, true, nil
}

func inferEinsum(inference *infer) error {
	if err := inference.RequireInputs(len(inference.In)); err != nil {
		return err
	}

	terms, rhs, ok, err := equation(inference.Op)
	if err != nil || !ok {
		return err
	}

	dim := map[byte]graph.Dim{}
	for i, term := range terms {
		shape := inference.In[i].Shape()
		if shape == nil {
			return nil
		}

		if len(shape) != len(term) {
			return fmt.Errorf("%q does not fit shape %v", term, shape)
		}

		for j := range shape {
			old, seen := dim[term[j]]
			switch {
			case seen && old.Static() && shape[j].Static() && old != shape[j] && !old.Is(1) && !shape[j].Is(1):
				return fmt.Errorf("index %c is %v and %v", term[j], old, shape[j])
			case !seen || old.Is(1) || shape[j].Static() && !shape[j].Is(1):
				dim[term[j]] = shape[j]
			}
		}
	}

	out := graph.Shape{}
	for j := range len(rhs) {
		d, ok := dim[rhs[j]]
		if !ok {
			return fmt.Errorf("index %c of the result is in no operand of %q", rhs[j],
				inference.Attrs.Str("equation", ""))
		}
		out = append(out, d)
	}

	return inference.Set(out)
}

// einsumVJP computes the gradient of one operand as the einsum of the output's gradient with the other operands. An
// index that only this operand has was summed, so its gradient is repeated along it.
func einsumVJP(backward *call) []node {
	terms, rhs, ok, err := equation(backward.Op)
	if err != nil || !ok || slices.ContainsFunc(terms, repeats) {
		return backward.Fail("equation %q: operands of unknown rank, and repeated indices within one, are not "+
			"supported", backward.Attrs.Str("equation", ""))
	}

	out := make([]node, len(terms))
	for i := range out {
		if !backward.NeedsGrad(i) {
			continue
		}

		in, have := []node{backward.G()}, []string{rhs}
		for j := range terms {
			if j != i {
				in, have = append(in, backward.X(j)), append(have, terms[j])
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

		d := apply("Einsum", graph.Attrs{"equation": graph.Attr(from + "->" + to)}, in...)
		if len(gone) > 0 {
			d = expandLike(d.Unsqueeze(gone...), backward.X(i))
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

// Standard rewrites ONNX Runtime's own operators that builders of layers and gradients use as operators of ONNX, so
// that other runtimes can read a file; ONNX Runtime fuses them again while it loads the file. An operator without a
// standard form stays.
func Standard(roots []node) []node {
	return graph.Transform(roots, func(op *graph.Op, in []node) []node {
		if op.Domain != graph.Microsoft {
			return nil
		}

		switch op.Kind {
		case "QuickGelu": // x σ(alpha x)
			alpha := op.Attrs.Float("alpha", 1.702)
			return []node{in[0].Mul(in[0].MulScalar(alpha).Sigmoid())}
		case "FusedMatMul": // alpha A B, with either transposed over its last two axes
			at := op.Attrs
			if in[0].Rank() < 2 || in[1].Rank() < 2 || at.Int("transBatchA", 0)+at.Int("transBatchB", 0) > 0 {
				return nil
			}
			return []node{product(in[0], in[1], flag(at, "transA"), flag(at, "transB"), at.Float("alpha", 1))}
		}

		return nil
	})
}

// StandardModel is Standard for all outputs of a model, which it may change.
func StandardModel(m *onnx.ModelProto) (*onnx.ModelProto, error) {
	f, err := graph.ReadModel(m)
	if err != nil {
		return nil, err
	}
	return graph.Model(StandardOutputs(f.Outputs)...)
}

// StandardOutputs is Standard for outputs.
func StandardOutputs(list []graph.Output) []graph.Output {
	nodes := convert.Slice(list, func(o graph.Output) node { return o.Node })
	out := slices.Clone(list)
	for i, n := range Standard(nodes) {
		out[i].Node = n
	}
	return out
}
