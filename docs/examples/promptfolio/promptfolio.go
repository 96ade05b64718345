// Package promptfolio is a method in a module of its own: importing it registers the method with promptfed.
package promptfolio

import (
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/runtime/graph"
)

// PromptFolio mixes the class features of an averaged prompt "global" and of a private one "local",
//
//	t_c = (1-theta) t_c(global) + theta t_c(local),
//
// unit rows before they are mixed and not after, so that classes in which the two prompts disagree score less. Both are
// trained on the cross entropy of the mixture. theta: 0 is PromptFL, theta: 1 is CoOp.
//
// Pan, Huang, Shi, Federated Learning from Vision-Language Foundation Models: Theoretical Analysis and Method, NeurIPS
// 2024, section 3; 8 tokens and theta 0.4 are its public code's. That code gives clients the weights of others in the
// average (its list of uploads is in the order of the draw, its weights in that of the clients); here each has its own.
type PromptFolio struct {
	method.Base
	methods.Context `config:",squash"`
	Theta           float64 `config:"theta" help:"share of the private prompt in the class features"`
}

func init() {
	methods.Register(methods.Def{Name: "promptfolio", Title: "PromptFolio", New: newPromptFolio,
		Paper: "Pan et al., Federated Learning from Vision-Language Foundation Models, NeurIPS 2024"})
}

func newPromptFolio() methods.Layer {
	return &PromptFolio{Context: methods.Context{Tokens: 8, Position: "end", Std: 0.02}, Theta: 0.4}
}

// Build checks the options.
func (m *PromptFolio) Build(method.Method) (method.Method, error) {
	return *m, methods.Join(m.Check(), methods.Within("theta", m.Theta, 0, 1))
}

// Traits states that the server needs nothing of clients but their mean, weighted by examples: the method runs with
// secure aggregation and under differential privacy.
func (PromptFolio) Traits() method.Traits { return method.Traits{Mean: method.ByExamples} }

// Params are both prompts [tokens,w].
func (m PromptFolio) Params(t method.Task) []method.Param {
	return append(m.Declare(t, "global", method.Shared), m.Declare(t, "local", method.Private)...)
}

// Logits are the class scores [B,C].
func (m PromptFolio) Logits(s *method.Scope) graph.Node {
	global, local := m.Features(s, s.Param("global")), m.Features(s, s.Param("local"))
	return s.Cosine(s.Image(), global.Scale(1-m.Theta).Add(local.Scale(m.Theta)))
}
