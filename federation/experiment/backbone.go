package experiment

import (
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// Backbone lets the engine see a bundle.
type Backbone struct{ *bundle.Bundle }

func (b Backbone) Name() string { return b.Bundle.Name }

func (b Backbone) Task() method.Task {
	t := method.Task{Width: b.Bundle.Text.Width, Dim: b.Bundle.Text.EmbedDim, Patches: b.Patches(), Scale: b.LogitScale,
		ImageSize: b.Preprocess.Size}
	if b.TakesPromptTokens() {
		t.VisionWidth = b.Bundle.Vision.Width
		if !b.Bundle.Vision.ResNet() {
			t.VisionLayers = b.Bundle.Vision.Layers
		}
	}
	return t
}

func (b Backbone) Vision(g *graph.Graph, pixels graph.Node, p method.VisionPrompts) (graph.Node, error) {
	n, _, err := b.Image(g, pixels, clip.VisionPrompts{Pixels: p.Pixels, Tokens: p.Tokens, Deep: p.Deep,
		Normed: p.Normed})
	return n, err
}

func (b Backbone) Text(g *graph.Graph, classes []string, prompts []spec.Prompt) ([]graph.Node, error) {
	p := make([]clip.Prompt, len(prompts))
	for i, q := range prompts {
		p[i] = clip.Prompt{Ctx: q.Ctx, After: q.After, Class: clip.Position(q.Position)}
	}
	return b.Prompts(g, classes, p)
}
