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
	method.Base
	Context `config:",squash"`
}

var promptFLDef = Def{Name: "promptfl", Title: "PromptFL", New: newPromptFL,
	Paper:   "Guo et al., PromptFL: Let Federated Participants Cooperatively Learn Prompts, TMC 2023",
	Traffic: promptTraffic}

func newPromptFL() Layer { return &PromptFL{Context: defaultContext} }

func (m *PromptFL) Build(method.Method) (method.Method, error) { return *m, m.check() }

func (PromptFL) Traits() method.Traits { return method.Traits{Mean: method.ByExamples} }

func (m PromptFL) Params(t method.Task) []method.Param { return m.params(t, method.Shared) }

func (m PromptFL) Logits(s *method.Scope) graph.Node { return m.logits(s) }

// Context is one learnable text prompt, "ctx" [tokens,w], as CoOp has it.
type Context struct {
	Tokens   int     `config:"tokens" help:"prompt tokens"`
	Position string  `config:"position" help:"of the class name: end, middle or front"`
	Std      float64 `config:"init_std" help:"standard deviation of the first prompt"`
}

var defaultContext = Context{Tokens: 16, Position: "end", Std: 0.02}

func (c Context) check() error {
	return all(within("tokens", c.Tokens, 1, maxTokens), oneOf("position", c.Position, "end", "middle", "front"),
		within("init_std", c.Std, 0, maxWeight))
}

func (c Context) params(t method.Task, o method.Owner) []method.Param {
	return []method.Param{{Name: "ctx", Shape: []int{c.Tokens, t.Width}, Std: c.Std, Owner: o}}
}

func (c Context) logits(s *method.Scope) graph.Node {
	return s.Cosine(s.Image(), s.TextRead(s.Param("ctx"), method.Reading{Position: c.Position}))
}
