package nn

import (
	"math"
	"slices"

	"promptfed/runtime/graph"
	"promptfed/runtime/ops"
	"promptfed/runtime/tensor"
)

// LayerNorm normalises the last axis of x to mean 0 and variance 1 (biased, plus eps) and applies gain and bias (Ba,
// Kiros, Hinton 2016). The gradient uses the operator's outputs for mean and deviation.
func LayerNorm(x, gain, bias graph.Node, eps float64) graph.Node {
	if x.KernelRows() {
		at := graph.Attrs{"epsilon": graph.Attr(float32(eps))}
		return x.Graph().ApplyN(graph.Kernels, "LayerNorm", at, 3, x, gain, bias)[0]
	}
	at := graph.Attrs{"axis": graph.Attr(-1), "epsilon": graph.Attr(float32(eps))}
	return x.Graph().ApplyN(graph.Standard, "LayerNormalization", at, 3, x, gain, bias)[0]
}

// Linear returns scale·x wᵀ + shift·b for x [N,in], w [out,in] and an optional b [out]. The scale takes no time.
// The bias is added by an operator that runs on all threads, because ONNX Runtime's Gemm copies it into the
// result on one thread before the product starts. A product of constants is a MatMul, because ONNX Runtime computes a
// FusedMatMul of constants in every run.
func Linear(x, w, b graph.Node, scale, shift float64) graph.Node {
	y := multiplied(x, w, scale)
	switch {
	case !b.OK():
		return y
	case shift != 1:
		b = b.MulScalar(shift)
	}

	return y.Add(b)
}

func multiplied(x, w graph.Node, scale float64) graph.Node {
	if len(graph.Inputs(x, w)) == 0 {
		return x.MatMul(w.T()).MulScalar(scale)
	}

	at := graph.Attrs{"transB": graph.Attr(1)}
	if op := w.Op(); w.Rank() == 2 && op.Domain == graph.Standard && op.Kind == "Transpose" { // the layout of exports
		w, at = op.In[0], graph.Attrs{}
	}

	if scale != 1 {
		at["alpha"] = graph.Attr(float32(scale))
	}

	return x.Graph().Apply(graph.Microsoft, "FusedMatMul", at, x, w)
}

// Residual returns x + y, two nodes of one shape.
func Residual(x, y graph.Node) graph.Node { return ops.AddSameShape(x, y) }

// Activations of MLP.
const (
	QuickGELU = "quick_gelu" // x σ(1.702 x), in OpenAI's CLIP
	GELU      = "gelu"       // x Φ(x), exact, by the error function
	GELUTanh  = "gelu_tanh"  // approximation by the hyperbolic tangent (Hendrycks and Gimpel 2016)
)

const quick = 1.702 // QuickGELU's factor inside the sigmoid

// MLP returns act(x fcᵀ + fcBias) projᵀ + projBias for x [N,w], fc [m,w], proj [w,m]. The constants of the
// activation are factors of the two products: with a = 1.702 x, QuickGELU(x) = a σ(a) / 1.702, and with a = x/√2,
// GELU(x) = a (1+erf a) / √2. up and down add scale times a change of rows x to the results y of the first and
// the second product.
func MLP(x, fc, fcBias, proj, projBias graph.Node, act string,
	up, down func(y, x graph.Node, scale float64) graph.Node) graph.Node {
	g, in, out := x.Graph(), quick, 1/quick
	switch act {
	case GELU:
		in, out = math.Sqrt2/2, math.Sqrt2/2
	case GELUTanh:
		in, out = 1, 1
	}

	kernels := act == QuickGELU && g.HasKernels(graph.DeviceKernels) && fcBias.Dim(0)%graph.KernelWidth == 0
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

// Attend returns softmax(q kᵀ/√d + mask) v for q [...,n,d], k and v [...,m,d] and an optional additive mask that
// broadcasts to [...,n,m].
func Attend(q, k, v, mask graph.Node) graph.Node {
	s := AttentionScores(q, k)
	if mask.OK() {
		s = s.Add(mask)
	}
	return s.Softmax(-1).MatMul(v)
}

// PackedAttention returns attention [len(spans),heads·d] for rows that hold query, key and value [n,3·heads·d]: the
// query of row spans[i][4] attends to the rows from spans[i][0] to spans[i][1] and from spans[i][2] to spans[i][3]. The
// graph must have graph.DeviceKernels, and d must be a multiple of graph.KernelWidth. No two queries are of one row.
func PackedAttention(qkv graph.Node, spans [][5]int, heads int) graph.Node {
	keys, flat := 0, make([]int64, 0, 5*len(spans))
	// of each row: the first query that attends to it, the one behind the last, and its own
	asked := make([]int64, 0, 3*qkv.Dim(0))
	for range qkv.Dim(0) {
		asked = append(asked, 0, 0, -1)
	}

	for i, span := range spans {
		keys = max(keys, span[1]-span[0]+span[3]-span[2])
		for _, v := range span {
			flat = append(flat, int64(v))
		}
		attend := func(from, to int) {
			for row := from; row < to; row++ {
				if asked[3*row+1] == 0 {
					asked[3*row] = int64(i)
				}
				asked[3*row+1] = int64(i + 1)
			}
		}
		attend(span[0], span[1])
		attend(span[2], span[3])
		asked[3*span[4]+2] = int64(i)
	}

	keys = (keys + graph.KernelWidth - 1) / graph.KernelWidth * graph.KernelWidth
	at := graph.Attrs{"heads": graph.Attr(heads), "keys": graph.Attr(keys)}
	g := qkv.Graph()
	return g.ApplyN(graph.Kernels, "Attention", at, 2, qkv, g.Const(tensor.OfInts(flat, len(spans), 5)),
		g.Const(tensor.OfInts(asked, qkv.Dim(0), 3)))[0]
}

// SequenceAttention returns attention [B·n,heads·d] for sequences of n rows that hold query, key and value
// [B·n,3·heads·d]: each row attends to all rows of its sequence. The graph must have graph.CPUKernels, and
// d is as for PackedAttention. The weights are not stored.
func SequenceAttention(qkv graph.Node, n, heads int) graph.Node {
	at := graph.Attrs{"heads": graph.Attr(heads), "rows": graph.Attr(n)}
	return qkv.Graph().Apply(graph.Kernels, "SequenceAttention", at, qkv)
}

// FusedAttention is SequenceAttention by ONNX Runtime's operator.
func FusedAttention(qkv graph.Node, n, heads int) graph.Node {
	width := qkv.Dim(-1) / 3
	parts := qkv.Reshape(-1, n, 3*width).Split(2, width, width, width)
	at := graph.Attrs{"num_heads": graph.Attr(heads)}
	return qkv.Graph().Apply(graph.Microsoft, "MultiHeadAttention", at, parts...).Reshape(-1, width)
}

// AttentionScores returns q kᵀ/√d for q [...,n,d] and k [...,m,d]; the factor takes no time.
func AttentionScores(q, k graph.Node) graph.Node {
	scale := float32(1 / math.Sqrt(float64(q.Dim(-1))))
	at := graph.Attrs{"transB": graph.Attr(1), "alpha": graph.Attr(scale)}
	return q.Graph().Apply(graph.Microsoft, "FusedMatMul", at, q, k)
}

// MaskValue is the mask value of a score that must not count: far below any score, and finite.
const MaskValue = -1e9

// SplitHeads splits rows [batch·n, parts·heads·d] into parts nodes [batch,heads,n,d]; batch may be -1 for any size.
func SplitHeads(x graph.Node, parts, batch, n, heads int) []graph.Node {
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

// MergeHeads is the inverse of SplitHeads: it returns [batch·n, heads·d] for [batch,heads,n,d].
func MergeHeads(x graph.Node) graph.Node {
	return x.Transpose(0, 2, 1, 3).Reshape(-1, x.Dim(1)*x.Dim(3))
}
