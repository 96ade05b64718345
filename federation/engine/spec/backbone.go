package spec

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// Backbone is a client's frozen encoders, as far as training prompts needs them.
type Backbone interface {
	Name() string
	// Task describes the backbone; the engine fills in the client, the clients, the classes and the backbone's name.
	Task() method.Task
	// Text adds the text tower over all prompts to g: class features [C,D] for each, not normalised.
	Text(g *graph.Graph, classes []string, prompts []Prompt) ([]graph.Node, error)
	// Sentences adds the features [N,D] of whole texts, not normalised.
	Sentences(g *graph.Graph, texts []string) (graph.Node, error)
	// Vision adds the image tower over pixels [B,3,S,S] with prompts: features [B,D], not normalised.
	Vision(g *graph.Graph, pixels graph.Node, p method.VisionPrompts) (graph.Node, error)
	// WeightsDir is the folder that the graph's weights are named relative to; empty when they are in the graph.
	WeightsDir() string
}

// Prompt is one learnable prompt [T,w] on its way through the text tower.
type Prompt struct {
	Ctx      graph.Node
	After    int
	Position string
}
