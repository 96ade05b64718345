package personalized

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// PromptFolio mixes the class features of an averaged prompt "global" and of a private one "local",
//
//	t_c = (1-theta) t_c(global) + theta t_c(local),  z_c = s f·t_c,
//
// unit rows before they are mixed and not after, so that classes in which the two prompts disagree score less. Both are
// trained on the cross entropy of the mixture. theta: 0 is PromptFL, theta: 1 is CoOp. A client is tested with the new
// average and its own local prompt.
//
// Pan, Huang, Shi, Federated Learning from Vision-Language Foundation Models: Theoretical Analysis and Method, NeurIPS
// 2024, section 3. Notes:
//   - 8 tokens and theta 0.4 are the public code's; other public code takes theta 0.2. The paper gives a best theta in
//     closed form and trains with fixed ones;
//   - the code gives clients the weights of others in the average (its list of uploads is in the order of the draw, its
//     weights in that of the clients); here each has its own.
type PromptFolio struct {
	method.FedAvg
	prompts.Context `config:",squash"`

	Theta float64 `config:"theta" in:"0..1" help:"share of the private prompt in the class features"`
}

var promptFolioDef = layer.Def{Name: "promptfolio", Title: "PromptFolio",
	Paper: "Pan et al., Federated Learning from Vision-Language Foundation Models: Theoretical Analysis and Method, " +
		"NeurIPS 2024",
	Traffic: layer.PromptTraffic,
	Default: PromptFolio{Context: prompts.Context{Tokens: 8, Position: "end", Std: 0.02}, Theta: 0.4}}

// Params declares "global", shared, and "local", private, both [tokens,w]. Every client begins with one draw of the
// local prompt, as in the code.
func (m PromptFolio) Params(t method.ClientSpec) []method.Param {
	return append(m.Declare(t, "global", method.Shared), m.Declare(t, "local", method.Private)[0].Alike())
}

// Logits compares images with the mixed class features t_c, which are not made unit rows again.
func (m PromptFolio) Logits(scope *method.Scope) graph.Node {
	global, local := m.Features(scope, scope.Param("global")), m.Features(scope, scope.Param("local"))
	return scope.Cosine(scope.Image(), global.MulScalar(1-m.Theta).Add(local.MulScalar(m.Theta)))
}
