package spec

import (
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// TaskOf returns what a method is built for: a client of an experiment, on a backbone.
func TaskOf(b Backbone, client, clients, classes int) method.ClientSpec {
	t := b.Task()
	t.Client, t.Clients, t.Classes, t.Backbone = client, clients, classes, b.Name()
	return t
}

// Backbone is the frozen encoders of a client, with what training of prompts needs of them.
type Backbone interface {
	Name() string
	// Task describes the backbone; the engine fills in the client, the clients, the classes and the backbone's name.
	Task() method.ClientSpec
	// Text adds the text tower over all prompts to g: class features [C,D] for each, not normalised; [B,C,D] for a
	// prompt [B,T,w].
	Text(g *graph.Graph, classes []string, prompts []method.Prompt) ([]graph.Node, error)
	// StepBytes returns about how much memory a training step takes for a prompt that has tokens and classes; of a
	// prompt for each image, for one image.
	StepBytes(classes []string, p method.Prompt) (int, error)
	// Words returns the embeddings [n,w] of the n tokens of a text, without those of its start and end.
	Words(text string) (*tensor.Tensor, error)
	// Sentences adds the features [N,D] of whole texts, not normalised.
	Sentences(g *graph.Graph, texts []string) (graph.Node, error)
	// Vision adds the image tower over pixels [B,3,S,S] with prompts: features [B,D], not normalised.
	Vision(g *graph.Graph, pixels graph.Node, p method.VisionPrompts) (graph.Node, error)
	// WeightsDir returns the folder that names of the graph's weights are relative to; empty if the weights are in the
	// graph.
	WeightsDir() string
}
