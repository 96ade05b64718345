package prompts

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// Context are the options of learnable text prompts [tokens,w] as CoOp has them, "ctx" where there is one.
type Context struct {
	Tokens   int     `config:"tokens" in:"1..tokens" help:"prompt tokens"`
	Position string  `config:"position" in:"end|middle|front" help:"position of the class name: end, middle or front"`
	Std      float64 `config:"init_std" in:"0.." help:"standard deviation of the initial prompt"`
}

// DefaultContext is CoOp's prompt: 16 tokens before the class name, normal with the deviation 0.02 (Zhou et al., IJCV
// 2022).
var DefaultContext = Context{Tokens: 16, Position: "end", Std: 0.02}

// Declare returns a prompt as a parameter.
func (c Context) Declare(t method.ClientSpec, name string, o method.Owner) []method.Param {
	return []method.Param{{Name: name, Shape: []int{c.Tokens, t.Width}, Std: c.Std, Owner: o}}
}

// Params declares one prompt, "ctx", shared.
func (c Context) Params(t method.ClientSpec) []method.Param {
	return c.Declare(t, "ctx", method.Shared)
}

// Features returns the class features [C,D] of a prompt.
func (c Context) Features(scope *method.Scope, ctx graph.Node) graph.Node {
	return scope.TextFeatures(method.Prompt{Ctx: ctx, Position: c.Position})
}

// Logits compares images with the class features of the prompt "ctx".
func (c Context) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(scope.Image(), c.Features(scope, scope.Param("ctx")))
}

// ClassContext is Context with CoOp's class-specific form: "ctx" is [C,tokens,w], one prompt for each class in place of
// one for all (Zhou et al., CoOp, IJCV 2022, section 3.2). A client's loss reaches the prompts of all classes, those
// that it has no examples of as negatives. A class that nobody trained has no prompt, so evaluation sets of other
// classes are refused. Nothing of a text is shared between classes: memory grows with C (1 + tokens + name).
type ClassContext struct {
	Context `config:",squash"`

	ClassSpecific bool `config:"class_specific" help:"a prompt for each class; evaluation sets need the same classes"`
}

// Declare returns the parameter "ctx".
func (c ClassContext) Declare(t method.ClientSpec, o method.Owner) []method.Param {
	out := c.Context.Declare(t, "ctx", o)
	if c.ClassSpecific {
		out[0].Shape = []int{t.Classes, c.Tokens, t.Width}
	}
	return out
}

// Logits compares images with the class features of "ctx".
func (c ClassContext) Logits(scope *method.Scope) graph.Node {
	p := method.Prompt{Ctx: scope.Param("ctx"), PerClass: c.ClassSpecific, Position: c.Position}
	return scope.Cosine(scope.Image(), scope.TextFeatures(p))
}
