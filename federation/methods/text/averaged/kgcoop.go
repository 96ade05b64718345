package averaged

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// KgCoOp learns one text prompt "ctx" and keeps its class features t_c near those of a hand-written prompt, h_c:
//
//	cross entropy + lambda mean_c (1 - cos(t_c, h_c)),
//
// and averages the prompt (FedAvg of Yao, Zhang, Xu, Visual-Language Prompt Tuning with Knowledge-guided Context
// Optimization, CVPR 2023, eq. 5-6), over all classes. The paper has ‖t_c - h_c‖², twice this for unit rows; 8
// is its lambda.
type KgCoOp struct {
	method.FedAvg
	prompts.OffsetContext `config:",squash"`
	prompts.Template      `config:",squash"`

	Lambda float64 `config:"lambda" in:"0.." help:"weight of the distance to the hand-written prompt; 0 removes it"`
}

var kgCoOpDef = layer.Def{Name: "kgcoop", Title: "KgCoOp",
	Paper: "FedAvg of Yao et al., Visual-Language Prompt Tuning with Knowledge-guided Context Optimization, " +
		"CVPR 2023",
	Traffic: layer.PromptTraffic,
	Default: KgCoOp{OffsetContext: prompts.OffsetContext{Tokens: 4, Words: prompts.PhotoPrompt},
		Template: prompts.AutoTemplate, Lambda: 8}}

// Loss adds the distance of the class features to cross entropy (eq. 5-6), over all classes, whichever the batch has.
func (m KgCoOp) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.FedAvg.Loss(scope, logits)
	if m.Lambda == 0 {
		return loss
	}
	text, hand := m.OffsetContext.Texts(scope), m.Template.Texts(scope)
	far := text.Mul(hand).Sum(-1).Neg().AddScalar(1) // [C]
	return loss.Add(scope.Term("knowledge", far.Mean().MulScalar(m.Lambda)))
}
