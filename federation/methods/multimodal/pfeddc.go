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
//   - the private prompt asks and the shared one gives keys and values, the private one is added: query, residual;
//     there is one head, of the prompt's width, and no norm and no bias: heads, att_width, norm. The weights are x Q,
//     not x Qᵀ;
//   - prompts of the image tower are tokens of the first block, or deep, or pixels: vision. RN50, on which table 5
//     reports, has no tokens: there shallow prompts join its attention pooling. Prompts of towers of different widths
//     have no mean: for a mix of backbones use pixels;
//   - table 6 switches modules off: attention. What the tower gets then is the shared prompt alone, as the row without
//     both equals PromptFL's to the last digit; without: own takes the private one, mean the mean of both;
//   - "to initialize the client's local prompts" (section 3.2) would lose what line 8 of algorithm 1 keeps: the private
//     prompts and modules are kept, as in the algorithm;
//   - "regenerating pseudo labels" (section 4.1) belongs to nothing in the method and is left out;
//   - the prompts have 16 tokens each, first values as in CoOp; batch and local epochs are the experiment's.
type PFedDC struct {
	method.FedAvg
	TextTokens             int     `config:"text_tokens" in:"1..tokens" help:"tokens of each text prompt"`
	Std                    float64 `config:"init_std" in:"0.." help:"standard deviation of the initial text prompts"`
	prompts.Visual         `config:",squash"`
	modules.CrossAttention `config:",squash"`

	Modules string `config:"attention" in:"both|text|image|none" help:"which prompts are mixed by attention"`
	Without string `config:"without" in:"shared|own|mean" help:"prompt of a tower without attention"`
}

var pfeddcDef = layer.Def{Name: "pfeddc", Title: "pFedDC",
	Paper: "Zhang et al., Personalized Federated Learning via Dual-Prompt Optimization and Cross Fusion, " +
		"arXiv 2506.21144",
	Default: PFedDC{TextTokens: 16, Std: 0.02, Visual: prompts.DefaultVisual,
		CrossAttention: modules.DefaultCrossAttention, Modules: "both", Without: "shared"}}

// mixed reports whether an attention module mixes a tower's prompts.
func (m PFedDC) mixed(tower string) bool { return m.Modules == "both" || m.Modules == tower }

func (m PFedDC) Params(t method.ClientSpec) []method.Param {
	text := func(name string, o method.Owner) []method.Param {
		return []method.Param{{Name: name, Shape: []int{m.TextTokens, t.Width}, Std: m.Std, Owner: o}}
	}
	image := func(name string, o method.Owner) []method.Param { return m.Visual.Declare(t, name, o) }
	return slices.Concat(m.pair("text", text), m.pair("image", image))
}

// pair declares the parameters of a tower: its prompts and its module.
func (m PFedDC) pair(tower string, prompt func(string, method.Owner) []method.Param) []method.Param {
	shared, own := prompt(tower+"/shared", method.Shared), prompt(tower+"/own", method.Private)
	switch {
	case m.mixed(tower):
		shape := own[0].Shape
		return slices.Concat(shared, own, m.CrossAttention.Weights("att/"+tower, shape[len(shape)-1]))
	case m.Without == "shared":
		return shared
	case m.Without == "own":
		return own
	}
	return slices.Concat(shared, own)
}

// prompt returns the prompt of a tower.
func (m PFedDC) prompt(s *method.Scope, tower string) graph.Node {
	shared, own := tower+"/shared", tower+"/own"
	switch {
	case m.mixed(tower):
		return m.Fuse(s, "att/"+tower, s.Param(own), s.Param(shared))
	case m.Without == "shared":
		return s.Param(shared)
	case m.Without == "own":
		return s.Param(own)
	}
	return s.Param(own).Add(s.Param(shared)).MulScalar(0.5)
}

func (m PFedDC) Logits(s *method.Scope) graph.Node {
	return s.Cosine(m.Features(s, m.prompt(s, "image")), s.Text(m.prompt(s, "text")))
}
