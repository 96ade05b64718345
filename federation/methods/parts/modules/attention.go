package modules

import (
	"math"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// Attention is a cross-attention module between two prompts of one shape, without biases: with h heads,
//
//	mix(x, y) = x + concat_h(softmax((x Q_h)(y K_h)ᵀ/√d) y V_h) O
//
// for rows x, y [P,w], Q, K, V [w,a], O [a,w] and d = a/h. Prompts of more dimensions are mixed matrix by matrix: block
// by block, or colour by colour with the rows of pixels as tokens.
type CrossAttention struct {
	Width    int    `config:"att_width" in:"0..hidden" help:"width of queries, keys and values; 0: that of the prompt"`
	Heads    int    `config:"heads" in:"1..hidden" help:"heads of each cross-attention module"`
	Query    string `config:"query" in:"own|shared" help:"prompt that gives the queries"`
	Norm     bool   `config:"norm" help:"apply a layer norm without gain and bias to both prompts before the attention"`
	Residual bool   `config:"residual" help:"add the prompt that gives the queries to the output of the attention"`
	Init     string `config:"att_init" in:"linear|zero"`
}

// LongHelp implements configtags.LongHelp.
func (CrossAttention) LongHelp() map[string]string {
	return map[string]string{
		"att_init": "initial weights: linear (the variance of torch.nn.Linear) or zero (O is zero, so that training " +
			"starts from the prompt that gives the queries)",
	}
}

var DefaultCrossAttention = CrossAttention{Heads: 1, Query: "own", Residual: true, Init: "linear"}

func (a CrossAttention) width(w int) int {
	if a.Width > 0 {
		return a.Width
	}
	return w
}

// params declares UNDER/q, k, v [w,a] and UNDER/o [a,w], all private.
func (a CrossAttention) Weights(under string, w int) []method.Param {
	var out []method.Param
	std := func(in int) float64 { return 1 / math.Sqrt(3*float64(in)) }
	wide := a.width(w)
	for _, name := range []string{"q", "k", "v"} {
		out = append(out, method.Param{Name: under + "/" + name, Shape: []int{w, wide}, Std: std(w),
			Owner: method.Private})
	}
	o := method.Param{Name: under + "/o", Shape: []int{wide, w}, Std: std(wide), Owner: method.Private}
	if a.Init == "zero" {
		o.Std = 0
	}
	return append(out, o)
}

// Fuse mixes a client's own prompt with the shared one, both [...,P,w].
func (a CrossAttention) Fuse(s *method.Scope, under string, own, shared graph.Node) graph.Node {
	sizes, _ := own.Shape().Ints()
	n, w := own.Dim(-2), own.Dim(-1)
	if a.width(w)%a.Heads != 0 {
		return s.Graph().Fail("%d heads do not divide the attention's width of %d; change options.heads or "+
			"options.att_width", a.Heads, a.width(w))
	}
	x, y := own.Reshape(-1, w), shared.Reshape(-1, w)
	if a.Query == "shared" {
		x, y = y, x
	}
	asks, gives := x, y
	if a.Norm {
		gain, bias := tensor.New(w), tensor.New(w)
		for i := range gain.Data {
			gain.Data[i] = 1
		}
		g := s.Graph()
		asks, gives = nn.LayerNorm(x, g.Const(gain), g.Const(bias), 1e-5), nn.LayerNorm(y, g.Const(gain), g.Const(bias),
			1e-5)
	}
	part := func(of graph.Node, name string) graph.Node {
		return nn.SplitHeads(of.MatMul(s.Param(under+"/"+name)), 1, -1, n, a.Heads)[0]
	}
	out := nn.MergeHeads(nn.Attend(part(asks, "q"), part(gives, "k"), part(gives, "v"),
		graph.Node{})).MatMul(s.Param(under + "/o"))
	if a.Residual {
		out = x.Add(out)
	}
	return out.Reshape(sizes...)
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
