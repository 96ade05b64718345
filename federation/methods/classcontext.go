package methods

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// ClassContext is Context with CoOp's class-specific form: "ctx" is [C,tokens,w], one prompt for each class in place of
// one for all (Zhou et al., CoOp, IJCV 2022, section 3.2). A client's loss reaches the prompts of all classes, those
// that it has no examples of as negatives. A class that nobody trained has no prompt, so evaluation sets of other
// classes are refused. Nothing of a text is shared between classes: memory grows with C (1 + tokens + name).
type ClassContext struct {
	Context       `config:",squash"`
	ClassSpecific bool `config:"class_specific" help:"a prompt for each class; evaluation sets keep the same classes"`
}

// Declare gives the prompt or the prompts as a parameter.
func (c ClassContext) Declare(t method.Task, o method.Owner) []method.Param {
	out := c.Context.Declare(t, "ctx", o)
	if c.ClassSpecific {
		out[0].Shape = []int{t.Classes, c.Tokens, t.Width}
	}
	return out
}

// Logits compares images with the class features of "ctx".
func (c ClassContext) Logits(s *method.Scope) graph.Node {
	p := method.Prompt{Ctx: s.Param("ctx"), PerClass: c.ClassSpecific, Reading: method.Reading{Position: c.Position}}
	return s.Cosine(s.Image(), s.TextOf(p))
}
