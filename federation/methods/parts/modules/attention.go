package modules

import (
	"math"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// CrossAttention is a cross-attention module of one head between two prompts of one shape, without biases:
//
//	mix(x, y) = x + softmax((x Q)(y K)ᵀ/√w) y V O
//
// for rows x, y [P,w] and Q, K, V, O [w,w], "NAME/q" and so on. Prompts of more dimensions are mixed matrix by matrix:
// block by block, or colour by colour with the rows of pixels as tokens.
type CrossAttention string

// Weights declares the module, all private, with the variance of torch.nn.Linear.
func (a CrossAttention) Weights(w int) (out []method.Param) {
	for _, name := range []string{"q", "k", "v", "o"} {
		out = append(out, method.Param{Name: string(a) + "/" + name, Shape: []int{w, w},
			Std: 1 / math.Sqrt(3*float64(w)), Owner: method.Private})
	}
	return out
}

// Fuse mixes a client's own prompt, which asks, with the shared one, both [...,P,w].
func (a CrossAttention) Fuse(scope *method.Scope, own, shared graph.Node) graph.Node {
	sizes, _ := own.Shape().Ints()
	n, w := own.Dim(-2), own.Dim(-1)
	x, y := own.Reshape(-1, w), shared.Reshape(-1, w)
	part := func(node graph.Node, name string) graph.Node {
		return nn.SplitHeads(node.MatMul(scope.Param(string(a)+"/"+name)), 1, -1, n, 1)[0]
	}
	out := nn.MergeHeads(nn.Attend(part(x, "q"), part(y, "k"), part(y, "v"), graph.Node{}))
	return x.Add(out.MatMul(scope.Param(string(a) + "/o"))).Reshape(sizes...)
}

// AttentionBlock declares an attention with its feed-forward layers: queries of width w, keys and values from rows of
// width kv, feed-forward layers of width mult w.
func AttentionBlock(name string, w, kv, mult int) []method.Param {
	out := LayerNorm(name+"/norm", w)
	for _, p := range [][]method.Param{Linear(name+"/q", w, w), Linear(name+"/k", w, kv), Linear(name+"/v", w, kv),
		Linear(name+"/o", w, w),
		LayerNorm(name+"/ff/norm", w), Linear(name+"/ff/in", 2*mult*w, w), Linear(name+"/ff/out", w, mult*w)} {
		out = append(out, p...)
	}
	return out
}

// InitAttention changes the layers q, k, v and o under a name, which InitLayers drew, to the initial values of
// torch.nn.MultiheadAttention: biases are 0, and weights of q, k and v follow Xavier's rule.
func InitAttention(seed uint64, shared tensor.Map, at string) {
	for _, part := range []string{"q", "k", "v", "o"} {
		w, b := shared[at+"/"+part+"/w"], shared[at+"/"+part+"/b"]
		if w == nil {
			continue
		}
		clear(b.Data)
		out, in := w.Shape[0], w.Shape[1]
		if shared[at+"/k/w"].Shape[1] == out {
			out = 3 * out // PyTorch draws q, k and v as one matrix where their widths agree
		}
		if part != "o" {
			InitUniform(seed, at+"/"+part+"/w", w, math.Sqrt(6/float64(out+in)))
		}
	}
}
