package method

import (
	"slices"
	"strconv"
	"strings"

	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// Learnable inputs of the image tower, and learnable parts inside a tower's blocks.
type (
	VisionPrompts = clip.VisionPrompts
	Changes       = clip.Changes
	LowRank       = clip.LowRank
	Adapter       = clip.Adapter
	Layer         = clip.Layer
)

// Prompt is what the class features are made of: a prompt in front of the class name, or a hand-written text.
type Prompt struct {
	Ctx graph.Node // [T,w]; [B,T,w] is a prompt for each image of the batch, [C,T,w] with PerClass
	// Deep[i] [P,w], P at most T, takes the place of the first P prompt tokens at the input of block i+1; where it is
	// absent, the tokens go on from the block before.
	Deep []graph.Node
	// Template is a hand-written text in place of Ctx, {} is the class; empty for that of the experiment.
	Template string
	Changes  Changes // of the tower
	Alone    bool    // without a class: features [1,D]
	Bare     bool    // no positions are added to Ctx, as none are to deep prompts
	PerClass bool    // each class has a prompt of its own
	Reading
}

// PerImage tells whether each image of the batch has a prompt of its own.
func (p Prompt) PerImage() bool { return p.Ctx.OK() && p.Ctx.Rank() == 3 && !p.PerClass }

// Flags of a prompt among the roles of its placeholder.
const bare, alone, perClass = "bare", "alone", "per class"

// TextOf gives the class features [C,D] of a prompt, of one for each image [B,C,D]. All prompts of a step with the same
// changes go through the text tower in one pass.
func (s *Scope) TextOf(p Prompt) graph.Node {
	if p.Position == "" {
		p.Position = "end"
	}
	roles, in := p.Changes.Roles()
	for i := len(p.Deep) - 1; i >= 0; i-- {
		if p.Deep[i].OK() {
			roles, in = append([]string{"deep " + strconv.Itoa(i)}, roles...), append([]graph.Node{p.Deep[i]}, in...)
		}
	}
	if p.Bare {
		roles = append([]string{bare}, roles...)
	}
	if p.PerClass {
		roles = append([]string{perClass}, roles...)
	}
	shape := []int{s.task.Classes, s.task.Dim}
	if p.Alone {
		shape[0], roles = 1, append([]string{alone}, roles...)
	}
	at := graph.Attrs{"after": graph.Attr(p.After), "position": graph.Attr(p.Position)}
	if p.Ctx.OK() {
		roles, in = append([]string{"ctx"}, roles...), append([]graph.Node{p.Ctx}, in...)
		if p.PerImage() {
			shape = append([]int{-1}, shape...)
		}
	} else {
		at["template"] = graph.Attr(p.Template)
	}
	if what := s.lacks(p); what != "" {
		return s.g.Fail("the text tower of backbone %s, an exported model, does not support %s", s.task.Backbone, what)
	}
	at["roles"] = graph.Attr(strings.Join(roles, ";"))
	return s.g.Placeholder(PlaceholderText, graph.Float, shape, at, in...).L2Normalize()
}

// lacks names what a prompt asks of a text tower whose blocks cannot be reached.
func (s *Scope) lacks(p Prompt) string {
	switch {
	case s.task.TextLayers > 0:
	case len(p.Deep) > 0 || p.Bare:
		return "deep prompts"
	case p.Alone:
		return "prompts without a class"
	case !p.Changes.None():
		return "low-rank changes or adapters"
	case p.PerImage():
		return "a prompt for each image"
	}
	return ""
}

// PromptOf reads a PlaceholderText placeholder.
func PromptOf(op *graph.Op) Prompt {
	p := Prompt{Template: op.Attrs.Str("template", ""),
		Reading: Reading{After: op.Attrs.Int("after", 0), Position: op.Attrs.Str("position", "end")}}
	roles, in := strings.Split(op.Attrs.Str("roles", ""), ";"), op.In
	for word, flag := range map[string]*bool{alone: &p.Alone, bare: &p.Bare, perClass: &p.PerClass} {
		*flag = slices.Contains(roles, word)
		roles = slices.DeleteFunc(roles, func(r string) bool { return r == word })
	}
	if len(roles) > 0 && roles[0] == "ctx" {
		p.Ctx, roles, in = in[0], roles[1:], in[1:]
	}
	for len(roles) > 0 && strings.HasPrefix(roles[0], "deep ") {
		i, _ := strconv.Atoi(roles[0][len("deep "):])
		p.Deep = append(append(p.Deep, make([]graph.Node, i-len(p.Deep))...), in[0])
		roles, in = roles[1:], in[1:]
	}
	p.Changes = clip.ChangesOf(roles, in)
	return p
}

// Words gives the embeddings [n,w] of n words, each a token of its own; they are constants.
func (s *Scope) Words(text string) graph.Node {
	return s.g.Placeholder(PlaceholderWords, graph.Float, []int{len(strings.Fields(text)), s.task.Width},
		graph.Attrs{"text": graph.Attr(text)})
}

// WordsOf reads a PlaceholderWords placeholder: its text, and how many tokens that must have.
func WordsOf(op *graph.Op) (text string, tokens int) {
	text = op.Attrs.Str("text", "")
	return text, len(strings.Fields(text))
}
