package method

import (
	"cmp"
	"slices"

	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// Learnable inputs of the image tower, and learnable parts inside a tower's blocks.
type (
	VisionPrompts = clip.VisionPrompts
	BlockChanges  = clip.BlockChanges
	LowRank       = clip.LowRank
	Adapter       = clip.Adapter
	Layer         = clip.Layer
)

// Prompt is the source of class features: a prompt in front of the class name, or a hand-written text.
type Prompt struct {
	Ctx graph.Node // [T,w]; [B,T,w] is a prompt for each image of the batch, [C,T,w] with PerClass
	// Deep[i] [P,w], P at most T, takes the place of the first P prompt tokens at the input of block i+1; where it is
	// absent, the tokens go on from the block before.
	Deep []graph.Node
	// Template is a hand-written text in place of Ctx, {} is the class; empty for that of the experiment.
	Template    string
	Changes     BlockChanges // of the tower
	NoClass     bool         // without a class: features [1,D]
	NoPositions bool         // no positions are added to Ctx, as none are to deep prompts
	PerClass    bool         // each class has a prompt of its own
	Position    string       // of the class name: "end" (also when empty), "middle" or "front" of the prompt
	// ReadOffset is how many positions after the end of the text its feature is read, on padding, as FedPHA's public
	// code reads short prompts.
	ReadOffset int
}

// PerImage tells whether each image of the batch has a prompt of its own.
func (p Prompt) PerImage() bool { return p.Ctx.OK() && p.Ctx.Rank() == 3 && !p.PerClass }

// TextFeatures returns the class features [C,D] of a prompt, or [B,C,D] of a prompt for each image. All prompts of a
// step with the same changes go through the text tower in one pass.
func (s *Scope) TextFeatures(prompt Prompt) graph.Node {
	prompt.Position = cmp.Or(prompt.Position, "end")
	shape := []int{s.task.Classes, s.task.Dim}
	if prompt.NoClass {
		shape[0] = 1
	}

	if prompt.Ctx.OK() {
		prompt.Template = ""
	}

	if prompt.PerImage() {
		shape = append([]int{-1}, shape...)
	}

	if what := s.lacks(prompt); what != "" {
		return s.graph.Fail("the text tower of backbone %s, an exported model, does not support %s", s.task.Backbone,
			what)
	}

	prompt.Deep = withoutAbsentTail(prompt.Deep)
	return s.graph.Placeholder(prompt, graph.Float, shape).L2Normalize()
}

// withoutAbsentTail drops absent nodes at the end of a list, which say nothing.
func withoutAbsentTail(deep []graph.Node) []graph.Node {
	for len(deep) > 0 && !deep[len(deep)-1].OK() {
		deep = deep[:len(deep)-1]
	}
	return slices.Clip(deep)
}

// lacks names what a prompt asks of a text tower whose blocks cannot be reached.
func (s *Scope) lacks(p Prompt) string {
	switch {
	case s.task.TextLayers > 0:
	case len(p.Deep) > 0 || p.NoPositions:
		return "deep prompts"
	case p.NoClass:
		return "prompts without a class"
	case !p.Changes.None():
		return "low-rank changes or adapters"
	case p.PerImage():
		return "a prompt for each image"
	}

	return ""
}
