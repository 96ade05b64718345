package averaged

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// ProGrad learns one text prompt "ctx" by the part of the cross entropy's gradient a that does not conflict with b, the
// gradient of the cross entropy with the class probabilities of a hand-written prompt, softened by tau:
//
//	a if a·b ≥ 0, else a - lambda (a·b / ‖b‖²) b,
//
// and averages the prompt (FedAvg of Zhu et al., Prompt-aligned Gradient for Prompt Tuning, ICCV 2023, eq. 3-5).
// Where b is 0, as at a prompt that is the hand-written one, there is no conflict. a is the gradient of the whole
// loss where wrappers add to it. variant: add is what FLiP calls ProGrad: the second loss is added to the first, and
// nothing is projected.
//
// The prompt has 16 tokens, of which the last begin at "a photo of a" and the others at zeros, as in the public code.
type ProGrad struct {
	method.FedAvg
	prompts.OffsetContext `config:",squash"`
	prompts.Template      `config:",squash"`

	Lambda  float64 `config:"lambda" in:"0.." help:"removed share of the conflict, or weight of the second loss"`
	Tau     float64 `config:"tau" in:"1e-3.." help:"temperature of the probabilities that are compared"`
	Variant string  `config:"variant" in:"project|add" help:"project, or add (the second loss, as in FLiP's code)"`
}

var proGradDef = layer.Def{Name: "prograd", Title: "ProGrad",
	Paper:   "FedAvg of Zhu et al., Prompt-aligned Gradient for Prompt Tuning, ICCV 2023",
	Traffic: layer.PromptTraffic,
	Default: ProGrad{OffsetContext: prompts.OffsetContext{Tokens: 16, Words: prompts.PhotoPrompt},
		Template: prompts.AutoTemplate, Lambda: 1, Tau: 1, Variant: "project"}}

const general = "general knowledge"

// Loss is the cross entropy, beside which the second loss, times tau², is an auxiliary one, for its gradient b.
// variant: add adds it with the weight lambda.
func (m ProGrad) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.FedAvg.Loss(scope, logits)
	hand := scope.Image().MatMulT(m.Template.Texts(scope)).MulScalar(scope.Task().Scale / m.Tau).Softmax(-1)
	second := hand.Mul(logits.MulScalar(1 / m.Tau).LogSoftmax(-1)).Sum(-1).Mean().MulScalar(-m.Tau * m.Tau)
	if m.Variant == "add" {
		return loss.Add(scope.Term(general, second.MulScalar(m.Lambda)))
	}

	scope.AuxLoss(general, second)
	return loss
}

// AdjustGradients projects each gradient.
func (m ProGrad) AdjustGradients(local *method.Local, grads tensor.Map) error {
	for name, b := range local.AuxGradients[general] {
		a, ab, bb := grads[name], 0.0, 0.0
		for i, v := range b.Data {
			ab += float64(a.Data[i]) * float64(v)
			bb += float64(v) * float64(v)
		}
		if ab < 0 && bb > 0 {
			a.Axpy(-m.Lambda*ab/bb, b)
		}
	}

	return nil
}
