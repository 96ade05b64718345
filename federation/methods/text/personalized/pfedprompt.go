package personalized

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// PFedPrompt averages one text prompt "ctx", as PromptFL does, and scores an image with the prompt and with a memory of
// the client: attention without parameters over the features k_i of the client's own training images, of classes y_i,
//
//	a = softmax_i(beta <f,k_i>), logits = exp(logit_scale) (<f,t_c> + alpha Σ_i a_i [y_i = c]).
//
// The memory stays on its client; only the prompt is sent.
//
// Guo, Guo, Wang, pFedPrompt: Learning Personalized Prompt for Vision-Language Models in Federated Learning, WWW 2023;
// alpha as FedAPPR's appendix sets it. There is no public code and the papers that compare with it say no more than
// that non-parametric attention personalises visual features locally, so that the formula above is OUR READING of it:
//   - beta is exp(logit_scale) unless it is given;
//   - the prompt is trained on the text's scores alone, see Loss;
//   - features are those of whole images, not spatial ones; of several views of an image one is remembered.
type PFedPrompt struct {
	method.FedAvg
	prompts.Context `config:",squash"`

	Alpha float64 `config:"alpha" in:"0.." help:"weight of the scores from the client's memory"`
	Beta  float64 `config:"beta" in:"0.." help:"sharpness of the attention; 0: the backbone's exp(logit_scale)"`
}

var pfedpromptDef = layer.Def{Name: "pfedprompt", Title: "pFedPrompt",
	Paper:   "Guo et al., pFedPrompt: Learning Personalized Prompt for Vision-Language Models, WWW 2023",
	Traffic: layer.PromptTraffic,
	Default: PFedPrompt{Context: prompts.DefaultContext, Alpha: 0.5}}

// Logits adds the scores of the memory to those of the prompt; alpha: 0 leaves PromptFL's.
func (m PFedPrompt) Logits(scope *method.Scope) graph.Node {
	logits := m.Context.Logits(scope)
	if m.Alpha == 0 {
		return logits
	}
	return logits.Add(m.remembered(scope).MulScalar(m.Alpha * scope.Task().Scale))
}

// remembered returns the memory's scores [B,C], before their scale.
func (m PFedPrompt) remembered(scope *method.Scope) graph.Node {
	keys := scope.Input(method.MemoryImage, graph.Float, graph.Rows("N", scope.Task().Dim))
	labels := scope.Input(method.MemoryLabel, graph.Int64, graph.Rows("N"))
	beta := m.Beta
	if beta == 0 {
		beta = scope.Task().Scale
	}
	return scope.Image().MatMulT(keys).MulScalar(beta).Softmax(-1).MatMul(graph.OneHot(labels, scope.Task().Classes))
}

// Loss is the cross entropy of the text's scores alone, since each training image finds itself in the memory, which
// leaves little to learn.
func (m PFedPrompt) Loss(scope *method.Scope, _ graph.Node) graph.Node {
	return m.FedAvg.Loss(scope, m.Context.Logits(scope))
}
