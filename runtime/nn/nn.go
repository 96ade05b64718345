// Package nn holds the layers of transformers as graph nodes, each in the form that ONNX Runtime computes fastest
// together with its gradient. Rows are tokens: a linear layer sees [N,width] whatever batch the rows came from.
package nn

import (
	"math"
	"slices"

	"promptfed/runtime/graph"
	_ "promptfed/runtime/ops" // defines the operators
	"promptfed/runtime/tensor"
)

// LayerNorm normalises the last axis of x to mean 0 and variance 1 (biased, with eps added) and applies gain and bias
// (Ba, Kiros, Hinton 2016). The operator's mean and deviation outputs are there for the gradient.
func LayerNorm(x, gain, bias graph.Node, eps float64) graph.Node {
	at := graph.Attrs{"axis": graph.Attr(-1), "epsilon": graph.Attr(float32(eps))}
	return x.Graph().ApplyN(graph.Standard, "LayerNormalization", at, 3, x, gain, bias)[0]
}

// Linear is scale·x wᵀ + shift·b for x [N,in], w [out,in] and an optional b [out]. The scale costs nothing. The
// bias is added in a pass of its own, which runs on all threads: ONNX Runtime's Gemm spreads it over the result on one
// thread before the product starts.
func Linear(x, w, b graph.Node, scale, shift float64) graph.Node {
	at := graph.Attrs{"transB": graph.Attr(1)}
	if op := w.Op(); w.Rank() == 2 && op.Domain == graph.Standard && op.Kind == "Transpose" { // as exports store it
		w, at = op.In[0], graph.Attrs{}
	}
	if scale != 1 {
		at["alpha"] = graph.Attr(float32(scale))
	}
	y := x.Graph().Apply(graph.Microsoft, "FusedMatMul", at, x, w)
	switch {
	case !b.OK():
		return y
	case shift != 1:
		b = b.MulScalar(shift)
	}
	return y.Add(b)
}

// Activations that MLP knows.
const (
	QuickGELU = "quick_gelu" // x σ(1.702 x), what OpenAI's CLIP was trained with
	GELU      = "gelu"       // x Φ(x), exact by the error function
	GELUTanh  = "gelu_tanh"  // its approximation by the hyperbolic tangent (Hendrycks and Gimpel 2016)
)

// quick is QuickGELU's slope inside the sigmoid.
const quick = 1.702

// MLP is act(x fcᵀ + fcBias) projᵀ + projBias for x [N,w], fc [m,w], proj [w,m]. The constants of the activation
// ride on the two products: with a = 1.702 x, QuickGELU(x) = a σ(a) / 1.702, and with a = x/√2, GELU(x) = a (1+erf
// a) / √2. up and down add scale times a change of rows x to what the first and the second product make of them.
func MLP(x, fc, fcBias, proj, projBias graph.Node, act string,
	up, down func(y, x graph.Node, scale float64) graph.Node) graph.Node {
	g, in, out := x.Graph(), quick, 1/quick
	switch act {
	case GELU:
		in, out = math.Sqrt2/2, math.Sqrt2/2
	case GELUTanh:
		in, out = 1, 1
	}
	kernels := act == QuickGELU && g.HasKernels() && fcBias.Dim(0)%graph.KernelWidth == 0
	first := fcBias
	if kernels {
		first = graph.Node{}
	}
	a := up(Linear(x, fc, first, in, in), x, in)
	switch {
	case kernels:
		a = g.Apply(graph.Kernels, "BiasQuickGelu", nil, a, fcBias.MulScalar(in))
	case act == QuickGELU:
		a = g.Apply(graph.Microsoft, "QuickGelu", graph.Attrs{"alpha": graph.Attr(float32(1))}, a) // a σ(a)
	case act == GELU:
		a = a.Add(a.Mul(a.Erf()))
	case act == GELUTanh: // √(2/π)(x + 0.044715 x³) = x √(2/π)(1 + 0.044715 x²)
		u := a.Mul(a.Square().MulScalar(0.044715).AddScalar(1)).MulScalar(math.Sqrt(2 / math.Pi))
		a = a.MulScalar(0.5).Mul(u.Tanh().AddScalar(1))
	default:
		return g.Fail("activation %q: use %s, %s or %s", act, QuickGELU, GELU, GELUTanh)
	}
	return down(Linear(a, proj, projBias, out, 1), a, out)
}

// Attend is softmax(q kᵀ/√d + mask) v for q [...,n,d], k and v [...,m,d] and an optional additive mask that
// broadcasts to [...,n,m].
func Attend(q, k, v, mask graph.Node) graph.Node {
	s := Scores(q, k)
	if mask.OK() {
		s = s.Add(mask)
	}
	return s.Softmax(-1).MatMul(v)
}

// PackedAttention is attention of rows that hold query, key and value side by side [n,3·heads·d], to [n,heads·d]:
// the query of row i sees the rows from spans[i][0] to spans[i][1] and from spans[i][2] to spans[i][3]. It is for
// graphs with kernels, and d must be a multiple of graph.KernelWidth.
func PackedAttention(qkv graph.Node, spans [][4]int, heads int) graph.Node {
	keys, flat := 0, make([]int64, 0, 4*len(spans))
	for _, s := range spans {
		keys = max(keys, s[1]-s[0]+s[3]-s[2])
		for _, v := range s {
			flat = append(flat, int64(v))
		}
	}
	keys = (keys + graph.KernelWidth - 1) / graph.KernelWidth * graph.KernelWidth
	at := graph.Attrs{"heads": graph.Attr(heads), "keys": graph.Attr(keys)}
	g := qkv.Graph()
	return g.ApplyN(graph.Kernels, "Attention", at, 2, qkv, g.Const(tensor.OfInts(flat, len(spans), 4)))[0]
}

// SequenceAttention is attention of sequences of n rows that hold query, key and value side by side [B·n,3·heads·d],
// to [B·n,heads·d]: each row sees all of its sequence. It is for graphs with kernels, as PackedAttention is, and
// leaves no weights in memory.
func SequenceAttention(qkv graph.Node, n, heads int) graph.Node {
	at := graph.Attrs{"heads": graph.Attr(heads), "rows": graph.Attr(n)}
	return qkv.Graph().Apply(graph.Kernels, "SequenceAttention", at, qkv)
}

// Scores is q kᵀ/√d for q [...,n,d] and k [...,m,d]; the factor costs nothing.
func Scores(q, k graph.Node) graph.Node {
	scale := float32(1 / math.Sqrt(float64(q.Dim(-1))))
	at := graph.Attrs{"transB": graph.Attr(1), "alpha": graph.Attr(scale)}
	return q.Graph().Apply(graph.Microsoft, "FusedMatMul", at, q, k)
}

// Masked is what a mask adds to a score that must not count: far below any score, and finite.
const Masked = -1e9

// Heads cuts rows [batch·n, parts·heads·d] into parts nodes [batch,heads,n,d]; batch may be -1 for "whatever is
// there".
func Heads(x graph.Node, parts, batch, n, heads int) []graph.Node {
	d := x.Dim(-1) / (parts * heads)
	if parts == 1 {
		return []graph.Node{x.Reshape(batch, n, heads, d).Transpose(0, 2, 1, 3)}
	}
	out, one := make([]graph.Node, parts), slices.Repeat([]int{1}, parts)
	for i, part := range x.Reshape(batch, n, parts, heads, d).Transpose(2, 0, 3, 1, 4).Split(0, one...) {
		out[i] = part.Reshape(batch, heads, n, d)
	}
	return out
}

// Rows undoes Heads: [batch,heads,n,d] to [batch·n, heads·d].
func Rows(x graph.Node) graph.Node {
	return x.Transpose(0, 2, 1, 3).Reshape(-1, x.Dim(1)*x.Dim(3))
}
