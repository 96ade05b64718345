package averaged

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// KgCoOp learns one text prompt "ctx" and keeps its class features t_c near those of a hand-written prompt, h_c:
//
//	cross entropy + lambda mean_c d(t_c, h_c),  d = 1 - cos (distance: cosine) or ‖t_c - h_c‖² (distance: squared),
//
// and averages the prompt (FedAvg of Yao, Zhang, Xu, Visual-Language Prompt Tuning with Knowledge-guided Context
// Optimization, CVPR 2023, eq. 5-6). The squared distance is the paper's, twice the cosine one of the public code, as
// all rows are unit rows; 8 is the paper's lambda. The mean is over all classes, also those that a client has no
// examples of (classes: all), or over its own (own).
type KgCoOp struct {
	method.FedAvg
	prompts.OffsetContext `config:",squash"`
	prompts.Template      `config:",squash"`

	Lambda   float64 `config:"lambda" in:"0.." help:"weight of the distance to the hand-written prompt; 0 removes it"`
	Distance string  `config:"distance" in:"cosine|squared" help:"cosine (public code) or squared (paper)"`
	Classes  string  `config:"classes" in:"all|own" help:"classes in the mean distance"`
}

var kgCoOpDef = layer.Def{Name: "kgcoop", Title: "KgCoOp",
	Paper: "FedAvg of Yao et al., Visual-Language Prompt Tuning with Knowledge-guided Context Optimization, " +
		"CVPR 2023",
	Traffic: layer.PromptTraffic,
	Default: KgCoOp{OffsetContext: prompts.OffsetContext{Tokens: 4, Words: prompts.PhotoPrompt},
		Template: prompts.AutoTemplate, Lambda: 8, Distance: "cosine", Classes: "all"}}

func (m KgCoOp) Params(t method.ClientSpec) []method.Param { return m.Declare(t, "ctx", method.Shared) }

func (m KgCoOp) texts(s *method.Scope) graph.Node { return s.Text(m.Full(s, "ctx")) }

func (m KgCoOp) Logits(s *method.Scope) graph.Node { return s.Cosine(s.Image(), m.texts(s)) }

func (m KgCoOp) Loss(s *method.Scope, logits graph.Node) graph.Node {
	loss := m.FedAvg.Loss(s, logits)
	if m.Lambda == 0 {
		return loss
	}
	text, hand := m.texts(s), m.Texts(s)
	far := text.Mul(hand).Sum(-1).Neg().AddScalar(1) // [C]
	if m.Distance == "squared" {
		far = text.Sub(hand).Square().Sum(-1)
	}
	mean := far.Mean()
	if m.Classes == "own" {
		mean = far.Mul(s.LocalClasses()).Sum().Div(s.LocalClasses().Sum())
	}
	return loss.Add(s.Term("knowledge", mean.MulScalar(m.Lambda)))
}
