package averaged

import (
	"fmt"
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/modules"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// FedTPG learns a generator that makes the prompt [tokens,w] from class names: soft queries look at the unit CLIP
// features of the bare names of the client's own classes through a cross-attention without residual, then x + FF(x), FF
// being layer norm, Linear(w, 8w), GEGLU and Linear(4w, w). The server averages the generator's weights. Queries are
// normalised before the attention, and so are the class features.
//
// Qiu et al., Federated Text-driven Prompt Generation for Vision-Language Models, ICLR 2024, section 4; sizes, norms,
// biases and first values are those of the public code: torch.nn.MultiheadAttention's for the attention (weights of q,
// k and v uniform by Xavier's rule, its biases 0), torch.nn.Linear's for the rest. Options and decisions:
//   - weighting: uniform is the public code, whose clients have as many examples each; examples is FedAvg;
//   - depth blocks of self-attention, x + SA(LN x), x + FF(x), may follow; the public script has none;
//   - the generator works in single precision, the public code's in half.
//
// The width of the class features enters the shared weights, so clients must agree in it.
type FedTPG struct {
	aggregate.WeightedMean `config:",squash"`

	Tokens int     `config:"tokens" in:"1..tokens" help:"prompt tokens that the generator produces"`
	Heads  int     `config:"heads" in:"1..tokens" help:"heads of each attention; they must divide the prompt width"`
	Depth  int     `config:"depth" in:"0..64" help:"blocks of self-attention after the cross-attention"`
	Mult   int     `config:"mult" in:"1..64" help:"hidden width of the feed-forward layers over the prompt width"`
	Std    float64 `config:"init_std" in:"0.." help:"standard deviation of the initial queries"`
}

var fedTPGDef = layer.Def{Name: "fedtpg", Title: "FedTPG",
	Paper: "Qiu et al., Federated Text-driven Prompt Generation for Vision-Language Models, ICLR 2024",
	Default: FedTPG{Tokens: 4, Heads: 4, Mult: 4, WeightedMean: aggregate.UniformMean,
		Std: 0.02}}

// Names of the generator's parts.
const (
	tpg        = "generator"
	tpgQueries = tpg + "/queries"
	tpgCross   = tpg + "/cross"
)

// tpgBlock returns the name of the i-th attention.
func tpgBlock(i int) string {
	if i == 0 {
		return tpgCross
	}
	return fmt.Sprintf("%s/self%d", tpg, i)
}

// Params declares the generator, all shared: the queries "generator/queries" [tokens,w], the cross-attention
// "generator/cross" from rows of width D to queries of width w, and depth self-attentions "generator/self1" and so on,
// each with its layer norms and feed-forward layers.
func (m FedTPG) Params(t method.ClientSpec) []method.Param {
	out := []method.Param{{Name: tpgQueries, Shape: []int{m.Tokens, t.Width}, Std: m.Std}}
	out = append(append(out, modules.LayerNorm(tpgCross+"/norm_kv", t.Dim)...),
		modules.AttentionBlock(tpgCross, t.Width, t.Dim, m.Mult)...)
	for i := range m.Depth {
		out = append(out, modules.AttentionBlock(tpgBlock(i+1), t.Width, t.Width, m.Mult)...)
	}
	return out
}

// Start draws the generator.
func (m FedTPG) Start(global *method.Global) error {
	modules.InitLayers(global.Seed, global.Shared, tpg)
	for i := range m.Depth + 1 {
		modules.InitAttention(global.Seed, global.Shared, tpgBlock(i))
	}
	return nil
}

// prompt generates the prompt [tokens,w].
func (m FedTPG) prompt(scope *method.Scope) graph.Node {
	rows := scope.Param(tpgQueries)
	if w := rows.Dim(1); w%m.Heads != 0 {
		return scope.Graph().Fail("option heads is %d; it must divide the prompt width %d", m.Heads, w)
	}

	names := modules.ApplyLayerNorm(scope, tpgCross+"/norm_kv", scope.HandText("{}"))
	rows = m.feed(scope, tpgCross, m.attend(scope, tpgCross, modules.ApplyLayerNorm(scope, tpgCross+"/norm", rows),
		names, others(scope)))
	for i := range m.Depth {
		at := tpgBlock(i + 1)
		y := modules.ApplyLayerNorm(scope, at+"/norm", rows)
		rows = m.feed(scope, at, rows.Add(m.attend(scope, at, y, y, graph.Node{})))
	}

	return rows
}

// localClasses returns [C]: 1 for the client's own classes, 0 for the others.
func localClasses(scope *method.Scope) graph.Node {
	return scope.Input(method.LocalClassesInput, graph.Float, graph.Static(scope.Task().Classes))
}

// others returns [C]: 0 for the client's own classes, and a number far below any score for the others.
func others(scope *method.Scope) graph.Node {
	return localClasses(scope).AddScalar(-1).MulScalar(-nn.MaskValue)
}

// attend returns multi-head attention of rows q [n,w] on rows kv [k,.].
func (m FedTPG) attend(scope *method.Scope, name string, q, kv, mask graph.Node) graph.Node {
	heads := func(part string, x graph.Node) graph.Node {
		return nn.SplitHeads(modules.ApplyLinear(scope, name+"/"+part, x), 1, 1, x.Dim(0), m.Heads)[0]
	}
	return modules.ApplyLinear(scope, name+"/o", nn.MergeHeads(nn.Attend(heads("q", q), heads("k", kv), heads("v", kv),
		mask)))
}

// feed returns x + FF(x), FF(x) being Linear(h GELU(gate)) with (h, gate) = Linear(LN x).
func (m FedTPG) feed(scope *method.Scope, name string, x graph.Node) graph.Node {
	half := m.Mult * x.Dim(1)
	h := modules.ApplyLinear(scope, name+"/ff/in", modules.ApplyLayerNorm(scope, name+"/ff/norm", x)).Split(-1, half,
		half)
	gelu := h[1].Mul(h[1].MulScalar(math.Sqrt2 / 2).Erf().AddScalar(1)).MulScalar(0.5)
	return x.Add(modules.ApplyLinear(scope, name+"/ff/out", h[0].Mul(gelu)))
}

// Logits scores all classes with the prompt made from the client's own names, as all methods here are tested; the
// public code scores only those that it makes the prompt from.
func (m FedTPG) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(scope.Image(), scope.Text(m.prompt(scope)))
}

// Loss scores a batch against the client's own classes only: its cross entropy is over them.
func (m FedTPG) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	// Examples of classes that are out of the scores, such as GGTPC's prototypes of other clients' classes, count 0.
	// [B]
	each := logits.Add(others(scope)).LogSoftmax(-1).Mul(graph.OneHot(scope.Label(), scope.Task().Classes)).Sum(-1)
	return scope.Term(method.CrossEntropy, each.Mul(localClasses(scope).Rows(scope.Label())).Mean().Neg())
}
