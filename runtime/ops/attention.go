package ops

import (
	"fmt"
	"math"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(
		def{Kind: "Attention", MinInputs: 3, Since: 23, Infer: inferAttention, Decompose: decomposeAttention,
			Attrs: "is_causal int, kv_num_heads int, q_num_heads int, qk_matmul_output_mode int, scale float, " +
				"softcap float, softmax_precision int"},
		def{Domain: graph.Microsoft, Kind: "MultiHeadAttention", MinInputs: 1, Infer: inferMultiHead,
			Decompose: decomposeMultiHead,
			Attrs:     "mask_filter_value float, num_heads int, scale float, unidirectional int"},
	)
}

// inferAttention is the shape rule of ONNX's Attention: the result has the shape of the query, with the width of the
// values.
func inferAttention(inference *infer) error {
	query, value := inference.In[0].Shape(), inference.In[2].Shape()
	if query == nil || value == nil || len(query) != len(value) {
		return nil
	}

	switch len(query) {
	case 4:
		return inference.Set(graph.Shape{query[0], query[1], query[2], value[3]})
	case 3:
		h, kv := inference.Attrs.Int("q_num_heads", 0), inference.Attrs.Int("kv_num_heads", 0)
		if h < 1 || kv < 1 {
			return fmt.Errorf("%d heads of queries and %d of keys", h, kv)
		}
		return inference.Set(graph.Shape{query[0], query[1], quotient(inference, value[2], kv,
			"width").Mul(graph.StaticDim(h))})
	}

	return nil
}

// decomposeAttention returns ONNX's Attention (operator set 23): softmax(scale q kᵀ + mask) v per head, for q, k,
// v of shapes [B,heads,L,d] or [B,L,heads·d]; several heads of q may share one head of k and v. Caches of earlier
// tokens are not supported.
func decomposeAttention(backward *call, in []node) node {
	at := backward.Attrs
	if len(in) < 3 || len(in) > 4 || len(backward.Out) > 1 && (backward.Out[1].Name() != "" || len(backward.Out) > 2) {
		return backward.FailNode("caches of earlier tokens and a second output are not supported")
	}

	q, k, v := in[0], in[1], in[2]
	flat := q.Rank() == 3
	if flat {
		h, kv := at.Int("q_num_heads", 0), at.Int("kv_num_heads", 0)
		if h < 1 || kv < 1 {
			return backward.FailNode("inputs of rank 3 need q_num_heads and kv_num_heads")
		}
		q, k, v = heads(q, h), heads(k, kv), heads(v, kv)
	}

	y := attend(backward, q, k, v, optional(in, 3), at.Float("scale", 0), at.Int("is_causal", 0) != 0,
		at.Float("softcap", 0))
	if flat && y.OK() {
		return joined(y)
	}

	return y
}

func inferMultiHead(o *infer) error {
	q := o.In[0].Shape()
	if v := o.X(2); len(q) == 3 && v.OK() && len(v.Shape()) == 3 {
		return o.Set(graph.Shape{q[0], q[1], v.Shape()[2]})
	}
	return nil
}

// decomposeMultiHead returns ONNX Runtime's MultiHeadAttention for query, key and value [B,L,heads·d], with an
// optional bias for the three and an optional addend of the scores.
func decomposeMultiHead(backward *call, in []node) node {
	headCount := backward.Attrs.Int("num_heads", 0)
	get := func(i int) node { return optional(in, i) }
	if headCount < 1 || len(in) < 3 || get(4).OK() || get(6).OK() || get(7).OK() || !in[1].OK() || !in[2].OK() ||
		in[0].Rank() != 3 || in[1].Rank() != 3 {
		return backward.FailNode("only separate query, key and value of rank 3 without padding mask and caches are " +
			"supported")
	}

	q, k, v := in[0], in[1], in[2]
	if b := get(3); b.OK() {
		w, ok := q.Shape()[2:].Ints()
		if !ok {
			return backward.FailNode("the width of its query is not known")
		}
		q, k, v = q.Add(b.Slice(0, 0, w[0])), k.Add(b.Slice(0, w[0], 2*w[0])), v.Add(b.Slice(0, 2*w[0], math.MaxInt32))
	}

	y := attend(backward, heads(q, headCount), heads(k, headCount), heads(v, headCount), get(5),
		backward.Attrs.Float("scale", 0), backward.Attrs.Int("unidirectional", 0) != 0, 0)
	if !y.OK() {
		return y
	}

	return joined(y)
}

// heads returns [B,L,h·d] as [B,h,L,d].
func heads(x node, h int) node { return x.Reshape(0, 0, h, -1).Transpose(0, 2, 1, 3) }

// joined returns [B,h,L,d] as [B,L,h·d].
func joined(x node) node { return x.Transpose(0, 2, 1, 3).Reshape(0, 0, -1) }

func attend(c *call, q, k, v, mask node, scale float64, causal bool, softcap float64) node {
	g := q.Graph()
	if q.Rank() != 4 || k.Rank() != 4 || v.Rank() != 4 || !q.Shape()[3].Static() || !q.Shape()[1].Static() ||
		!k.Shape()[1].Static() {
		return c.FailNode("ranks, heads and width of %v, %v and %v must be known", q.Shape(), k.Shape(), v.Shape())
	}

	if n := q.Dim(1) / max(1, k.Dim(1)); n > 1 { // n heads of queries share a head of keys and values
		repeat := func(x node) node {
			shape := vector(sizeOf(x, 0), sizeOf(x, 1), g.Ints(n), sizeOf(x, 2), sizeOf(x, 3))
			wide := apply("Expand", nil, x.Unsqueeze(2), shape)
			return reshape(wide, vector(sizeOf(x, 0), g.Ints(q.Dim(1)), sizeOf(x, 2), sizeOf(x, 3)))
		}
		k, v = repeat(k), repeat(v)
	}

	if scale == 0 {
		scale = 1 / math.Sqrt(float64(q.Dim(3)))
	}

	scores := q.MatMul(k.Transpose(0, 1, 3, 2)).MulScalar(scale)
	if softcap != 0 {
		scores = scores.MulScalar(1 / softcap).Tanh().MulScalar(softcap)
	}

	hide := func(seen node) { scores = seen.Where(scores, scores.ScalarLike(math.Inf(-1))) }
	if causal {
		ones := apply("Expand", nil, g.Scalar(1), vector(sizeOf(q, 2), sizeOf(k, 2)))
		hide(apply("Trilu", graph.Attrs{"upper": graph.Attr(0)}, ones).Cast(graph.Bool))
	}

	switch {
	case !mask.OK():
	case mask.DType() == graph.Bool:
		hide(mask)
	default:
		scores = scores.Add(mask)
	}

	return scores.Softmax(-1).MatMul(v)
}
