package methods

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// PromptFL averages one text prompt; every client is tested with the average.
//
// Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts Instead of Models, TMC 2023, algorithm
// 1. Loss and layout are CoOp's (Zhou et al., IJCV 2022, eq. 2-3).
type PromptFL struct {
	method.FedAvg
	Context `config:",squash"`
}

var promptFLDef = Def{Name: "promptfl", Title: "PromptFL", New: newPromptFL,
	Paper:   "Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts, TMC 2023",
	Traffic: promptTraffic}

func newPromptFL() Layer { return &PromptFL{Context: defaultContext} }

func (m *PromptFL) Build(method.Method) (method.Method, error) { return *m, m.Check() }

func (m PromptFL) Params(t method.Task) []method.Param { return m.Declare(t, "ctx", method.Shared) }

// Context are the options of learnable text prompts [tokens,w] as CoOp has them, "ctx" where there is one.
type Context struct {
	Tokens   int     `config:"tokens" help:"prompt tokens"`
	Position string  `config:"position" help:"of the class name: end, middle or front"`
	Std      float64 `config:"init_std" help:"standard deviation of the first prompt"`
}

var defaultContext = Context{Tokens: 16, Position: "end", Std: 0.02}

// Check refuses options that make no sense.
func (c Context) Check() error {
	return Join(Within("tokens", c.Tokens, 1, maxTokens), OneOf("position", c.Position, "end", "middle", "front"),
		Within("init_std", c.Std, 0, maxWeight))
}

// Declare gives a prompt as a parameter.
func (c Context) Declare(t method.Task, name string, o method.Owner) []method.Param {
	return []method.Param{{Name: name, Shape: []int{c.Tokens, t.Width}, Std: c.Std, Owner: o}}
}

// Features gives the class features [C,D] of a prompt.
func (c Context) Features(s *method.Scope, ctx graph.Node) graph.Node {
	return s.TextRead(ctx, method.Reading{Position: c.Position})
}

// Logits compares images with the class features of the prompt "ctx".
func (c Context) Logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Image(), c.Features(s, s.Param("ctx")))
}
