package image

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/modules"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
	"promptfed/runtime/tensor"
)

// FedMVP makes prompt tokens of the image tower from the image's own patches and from texts of all classes, by a
// network that the server averages. With the embeddings E [M,v] of the patches and the unit text features a_ci [e] of
// n attributes of each of C classes, K = C n,
//
//	A = Linear(a) [K,v], H = Attention(LN E, LN A, A) [M,v], H' = FF(H) + H, P = means of H' over tokens runs of rows,
//
// the attention without residual, FF being layer norm, Linear(v, 2 mult v), GEGLU and Linear(mult v, v). The image
// tower reads [class, E, P] and gives the unit feature f; class c scores mean_i s f·a_ci. The loss is
//
//	CE(z, y) + alpha (1 - mean cos(f, f0)),
//
// f0 the plain tower's feature of the image flipped from left to right. No text prompt is learned; the text features
// are constants.
//
// Singha et al., FedMVP: Federated Multi-modal Visual Prompt Tuning for Vision-Language Models, ICCV 2025. Notes:
//   - attributes are a language model's sentences, by class, as many for each; public code has ten and cuts them after
//     77 letters, which is not done here. Without any, templates are used;
//   - classes that an evaluation set has beside those of training need attributes too; prompts depend on the classes;
//   - the code flips all of a batch or nothing, by a coin;
//   - public code trains one step a round, on its last batch; here a turn is as the experiment says;
//   - in the paper a client whose loss is below 0.5 freezes the attention and learns low-rank changes of its
//     inputs, E + E B_q C_q and likewise keys and values. The public code's server never has them in its tests, and
//     averages clients with and without. Here all have them from round lora_round on, tests with the round before;
//   - attention and layers begin as torch.nn's, as in the code; clients count once in the mean.
//
// The image tower's and the features' width enter the shared weights, so clients must agree in both.
// Names: mvp/lora [1], 1 while low-rank changes are learned, to everyone.
type FedMVP struct {
	aggregate.WeightedMean `config:",squash"`

	Tokens     int                 `config:"tokens" in:"1..tokens" help:"prompt tokens for each image"`
	Heads      int                 `config:"heads" in:"1..tokens" help:"heads; they must divide the tower's width"`
	Mult       int                 `config:"mult" in:"1..64" help:"feed-forward layers' width over the tower's"`
	Alpha      float64             `config:"alpha" in:"0.." help:"weight of the consistency with the unprompted tower"`
	Attributes map[string][]string `config:"attributes" help:"sentences by class; empty: templates are used instead"`
	Templates  []string            `config:"templates" help:"used without attributes: imagenet-7, or texts with {}"`
	LoRARound  int                 `config:"lora_round" in:"0..steps" help:"first round of low-rank changes; 0: none"`
	Rank       int                 `config:"rank" in:"1..tokens" help:"rank of the low-rank changes"`
}

var fedMVPDef = layer.Def{Name: "fedmvp", Title: "FedMVP",
	Paper: "Singha et al., FedMVP: Federated Multi-modal Visual Prompt Tuning for Vision-Language Models, ICCV 2025",
	Default: FedMVP{WeightedMean: aggregate.UniformMean, Tokens: 4, Heads: 4, Mult: 4, Alpha: 10,
		Templates: []string{"imagenet-7"}, Rank: 8}}

// Check reports classes with no attributes or with other numbers of them than the others, options without any text,
// neither attributes nor templates, and templates without a place {} for the class name.
func (m FedMVP) Check() (err error) {
	n := -1
	for class, list := range m.Attributes {
		if n >= 0 && len(list) != n || len(list) == 0 {
			err = check.Join(err, check.OptionErrorf("attributes", " has %d for class %q and %d for another; give "+
				"all classes the same number, 1 or more", len(list), class, max(n, 0)))
			break
		}
		n = len(list)
	}

	if n < 0 && len(prompts.Ensemble(m.Templates)) == 0 {
		err = check.Join(err, errors.New("options attributes and templates are empty; give one of the two"))
	}

	return check.Join(err, prompts.CheckEnsemble("templates", m.Templates))
}

// Properties declares the mean of option weighting, and that low-rank changes wait for round lora_round.
func (m FedMVP) Properties() method.Properties {
	t := m.WeightedMean.Properties()
	t.Delays = []method.DelayedTerm{{Part: "FedMVP's training of low-rank changes", Option: "lora_round",
		Rounds: max(m.LoRARound-1, 0)}}
	return t
}

// Names of the network's parts.
const (
	mvpFormer = "former"
	mvpLoRA   = "lora"
	mvpOn     = "mvp/lora"
)

// loraStd is the standard deviation of initial low-rank changes.
const loraStd = 0.02

// Params declares the network, all shared: "former/proj" from D to v of the texts, the attention with the layer norms
// "former/norm" of patches and "former/norm_kv" of texts, and the layers "former/ff". With lora_round there are the
// low-rank changes of the attention's inputs too, "lora/q", "lora/k" and "lora/v", each "/a" [v,rank] and "/b"
// [rank,v].
func (m FedMVP) Params(t method.ClientSpec) []method.Param {
	v := t.VisionWidth
	out := append(modules.Linear(mvpFormer+"/proj", v, t.Dim), modules.LayerNorm(mvpFormer+"/norm_kv", v)...)
	out = append(out, modules.AttentionBlock(mvpFormer, v, v, m.Mult)...)
	if m.LoRARound > 0 {
		for _, part := range []string{"q", "k", "v"} {
			at := mvpLoRA + "/" + part
			out = append(out, method.Param{Name: at + "/a", Shape: []int{v, m.Rank}, Std: loraStd},
				method.Param{Name: at + "/b", Shape: []int{m.Rank, v}, Std: loraStd})
		}
	}

	return out
}

// Start draws the network.
func (m FedMVP) Start(global *method.Global) error {
	modules.InitLayers(global.Seed, global.Shared, mvpFormer)
	modules.InitAttention(global.Seed, global.Shared, mvpFormer)
	m.switched(global, 1)
	return nil
}

// switched sends whether clients learn low-rank changes in a round, counted from 1.
func (m FedMVP) switched(global *method.Global, round int) {
	if m.LoRARound > 0 {
		on := tensor.New(1)
		if round >= m.LoRARound {
			on.Data[0] = 1
		}
		global.Broadcast[mvpOn] = on
	}
}

// Merge averages the network with the weights of option weighting, and sends whether clients learn low-rank changes in
// the next round.
func (m FedMVP) Merge(global *method.Global, ups []method.Upload) error {
	m.switched(global, global.Round+2)
	return m.WeightedMean.Merge(global, ups)
}

// texts returns the unit features of attributes, n of [C,e].
func (m FedMVP) texts(scope *method.Scope) (out []graph.Node) {
	for _, list := range m.Attributes {
		for i := range list {
			table := map[string]string{}
			for class, own := range m.Attributes {
				table[class] = own[i]
			}
			out = append(out, scope.HandTextFeatures(method.HandTexts{Of: table,
				Templates: []string{"a photo of a {} which has {of}."}}))
		}
		return out
	}

	for _, template := range prompts.Ensemble(m.Templates) {
		out = append(out, scope.HandText(template))
	}

	return out
}

// changed returns x + on x A B.
func (m FedMVP) changed(scope *method.Scope, x graph.Node, part string) graph.Node {
	if m.LoRARound == 0 {
		return x
	}
	at := mvpLoRA + "/" + part
	return x.Add(x.MatMul(scope.Param(at + "/a")).MatMul(scope.Param(at + "/b")).Mul(scope.Broadcast(mvpOn, 1)))
}

// prompt returns the tokens [B,tokens,v] of images from the texts' features. All products are of rows of images with
// matrices, so that a batch may be computed in parts.
func (m FedMVP) prompt(scope *method.Scope, texts []graph.Node) graph.Node {
	width, e := scope.Task().VisionWidth, scope.Vision(method.VisionPrompts{Embeddings: true})
	part := func(name string, lo, hi int, x graph.Node) graph.Node { // some outputs of a layer
		name = mvpFormer + "/" + name
		return nn.Linear(x, scope.Param(name+"/w").Slice(0, lo, hi), scope.Param(name+"/b").Slice(0, lo, hi), 1, 1)
	}

	context := part("proj", 0, width, graph.Concat(0, texts...)) // [K,v]
	query := modules.ApplyLayerNorm(scope, mvpFormer+"/norm", m.changed(scope, e, "q"))
	keys := modules.ApplyLayerNorm(scope, mvpFormer+"/norm_kv", m.changed(scope, context, "k"))
	values, d := m.changed(scope, context, "v"), width/m.Heads
	h, out := scope.Param(mvpFormer+"/o/b"), scope.Param(mvpFormer+"/o/w")
	for lo := 0; lo < width; lo += d { // a head each
		a := part("q", lo, lo+d, query).MatMul(part("k", lo, lo+d, keys).T()).MulScalar(1 / math.Sqrt(float64(d)))
		h = a.Softmax(-1).MatMul(part("v", lo, lo+d, values)).MatMul(out.Slice(1, lo, lo+d).T()).Add(h) // [B,M,v]
	}

	x, wide := modules.ApplyLayerNorm(scope, mvpFormer+"/ff/norm", h), m.Mult*width
	gate := part("ff/in", wide, 2*wide, x)
	gelu := gate.MulScalar(math.Sqrt2 / 2).Erf().AddScalar(1).Mul(gate).MulScalar(0.5)
	h = part("ff/out", 0, width, part("ff/in", 0, wide, x).Mul(gelu)).Add(h)
	return scope.Graph().Const(runs(m.Tokens, scope.Task().Patches)).MatMul(h)
}

// runs returns a matrix [n,rows] that takes the means of n runs of rows, as torch.nn.AdaptiveAvgPool1d cuts them.
func runs(n, rows int) *tensor.Tensor {
	out := tensor.New(n, rows)
	for i := range n {
		lo, hi := i*rows/n, ((i+1)*rows+n-1)/n
		for j := lo; j < hi; j++ {
			out.Row(i).Data[j] = 1 / float32(hi-lo)
		}
	}

	return out
}

// Logits compares the prompted image features with the mean attribute features of each class, which are no unit rows:
// the result is the mean of the scores of a class's attributes.
func (m FedMVP) Logits(scope *method.Scope) graph.Node {
	x, t := m.pair(scope)
	return scope.Cosine(x, t)
}

// pair returns the unit features of images, and the mean features of the attributes of each class.
func (m FedMVP) pair(scope *method.Scope) (image, text graph.Node) {
	t := scope.Task()
	why := prompts.TokensUnsupported(t, true)
	switch {
	case why != "":
		why += "; fedmvp needs a vision transformer"
	case t.VisionWidth%m.Heads != 0:
		why = fmt.Sprintf("option heads is %d; it must divide the image tower's width %d", m.Heads, t.VisionWidth)
	case t.Patches == 0:
		why = "fedmvp reads patch features, which backbone " + t.Backbone + " does not provide"
	}

	if why != "" {
		n := scope.Graph().Fail("%s", why)
		return n, n
	}

	texts := m.texts(scope)
	return scope.Vision(method.VisionPrompts{Tokens: m.prompt(scope, texts)}), graph.Stack(texts...).Mean(0)
}

// Loss adds the consistency to cross entropy. For it the plain image tower runs over the flipped images in each step;
// alpha: 0 leaves it out.
func (m FedMVP) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.WeightedMean.Loss(scope, logits)
	if m.Alpha == 0 {
		return loss
	}
	x, _ := m.pair(scope)
	apart := x.Mul(m.plain(scope)).Sum(-1).Mean().Neg().AddScalar(1).MulScalar(m.Alpha)
	return loss.Add(scope.Term("consistency", apart))
}

// plain returns the plain tower's features of flipped images.
func (m FedMVP) plain(scope *method.Scope) graph.Node {
	last := make([]int, scope.Task().ImageSize)
	for i := range last {
		last[i] = len(last) - 1 - i
	}
	turn := scope.Pixels().Gather(3, scope.Graph().Ints(last...)).Sub(scope.Pixels())
	return scope.Vision(method.VisionPrompts{Pixels: turn})
}

// AdjustGradients changes no gradient, but freezes the low-rank changes before round lora_round, and from then on
// the rest of the network.
func (m FedMVP) AdjustGradients(local *method.Local, _ tensor.Map) error {
	on := local.Broadcast[mvpOn]
	for _, p := range m.Params(local.Task) { // gradients may be of a wrapper's parameters too
		if strings.HasPrefix(p.Name, mvpLoRA+"/") != (on != nil && on.Data[0] == 1) {
			local.Frozen = append(local.Frozen, p.Name)
		}
	}

	return nil
}
