package multimodal

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/modules"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// PFedDC learns a shared and a private prompt of each tower, "text/shared" and "text/own" [tokens,w], "image/shared"
// and "image/own" (see Visual for their shape), and mixes each pair by a cross-attention module that stays on its
// client, "att/text" and "att/image" (eq. 4-5, see Attention). The frozen towers get the mixed prompts; the loss is
// cross entropy (eq. 6). Only the shared prompts are sent, and averaged by examples (eq. 2-3); a client is tested with
// the averages and with its own prompts and modules.
//
// Zhang et al., Personalized Federated Learning via Dual-Prompt Optimization and Cross Fusion, arXiv 2506.21144, eq.
// 2-6, algorithm 1. There is no public code. Where the paper is silent or contradicts itself:
//   - the private prompt asks and the shared one gives keys and values, the private one is added; there is one head, of
//     the prompt's width, and no norm and no bias. The weights are x Q, not x Qᵀ;
//   - prompts of the image tower are tokens of the first block, or deep, or pixels: vision. RN50, on which table 5
//     reports, has no tokens: there shallow prompts join its attention pooling. Prompts of towers of different widths
//     have no mean: for a mix of backbones use pixels;
//   - table 6 switches modules off: attention. What the tower gets then is the shared prompt alone, as the row without
//     both equals PromptFL's to the last digit;
//   - "to initialize the client's local prompts" (section 3.2) would lose what line 8 of algorithm 1 keeps: the private
//     prompts and modules are kept, as in the algorithm;
//   - "regenerating pseudo labels" (section 4.1) belongs to nothing in the method and is left out;
//   - the prompts have 16 tokens each, first values as in CoOp; batch and local epochs are the experiment's.
type PFedDC struct {
	method.FedAvg
	TextTokens     int     `config:"text_tokens" in:"1..tokens" help:"tokens of each text prompt"`
	Std            float64 `config:"init_std" in:"0.." help:"standard deviation of the initial text prompts"`
	prompts.Visual `config:",squash"`

	Modules string `config:"attention" in:"both|text|image|none" help:"which prompts are mixed by attention"`
}

var pfeddcDef = layer.Def{Name: "pfeddc", Title: "pFedDC",
	Paper: "Zhang et al., Personalized Federated Learning via Dual-Prompt Optimization and Cross Fusion, " +
		"arXiv 2506.21144",
	Default: PFedDC{TextTokens: 16, Std: 0.02, Visual: prompts.DefaultVisual, Modules: "both"}}

// mixed reports whether an attention module mixes a tower's prompts.
func (m PFedDC) mixed(tower string) bool { return m.Modules == "both" || m.Modules == tower }

// Params declares of each tower the shared prompt and, where option attention mixes the tower's prompts, the private
// one and the module's private matrices Q, K, V and O, "att/TOWER/q" and so on, as wide as the prompt.
func (m PFedDC) Params(t method.ClientSpec) []method.Param {
	text := prompts.Context{Tokens: m.TextTokens, Std: m.Std}
	return append(m.pair("text", t, text.Declare), m.pair("image", t, m.Visual.Declare)...)
}

// pair declares the parameters of a tower: its prompts and its module.
func (m PFedDC) pair(tower string, t method.ClientSpec,
	declare func(method.ClientSpec, string, method.Owner) []method.Param) []method.Param {
	shared, own := declare(t, tower+"/shared", method.Shared), declare(t, tower+"/own", method.Private)
	if !m.mixed(tower) {
		return shared
	}
	shape := own[0].Shape
	return slices.Concat(shared, own, attention(tower).Weights(shape[len(shape)-1]))
}

func attention(tower string) modules.CrossAttention { return modules.CrossAttention("att/" + tower) }

// prompt returns the prompt of a tower.
func (m PFedDC) prompt(scope *method.Scope, tower string) graph.Node {
	shared := scope.Param(tower + "/shared")
	if !m.mixed(tower) {
		return shared
	}
	return attention(tower).Fuse(scope, scope.Param(tower+"/own"), shared)
}

// Logits compares images and texts under the prompts that attention mixed; a tower without attention gets the shared
// prompt.
func (m PFedDC) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(m.Features(scope, m.prompt(scope, "image")), scope.Text(m.prompt(scope, "text")))
}
