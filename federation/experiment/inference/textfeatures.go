package inference

import (
	"context"
	"fmt"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// TextFeatures returns the class features [C,D], unit rows, that a client's class scores compare images with: the
// largest part of the scores of that shape that depends on no image. prompts are those of PromptsFile, or of
// InitialParams. A method that compares images with something else is an error.
func TextFeatures(w *client.Worker, ctx context.Context, c *spec.Client, clients int,
	prompts tensor.Map) (*tensor.Tensor, error) {
	g, err := scoresOf(w, c, clients, prompts)
	if err != nil {
		return nil, err
	}
	task := g.local.Task
	for _, n := range client.FixedParts(g.scores) {
		shape, ok := n.Shape().Ints()
		switch {
		case !ok || len(shape) != 2 || n.DType() != graph.Float:
			continue
		case shape[0] == task.Dim && shape[1] == task.Classes:
			n = n.Transpose(1, 0)
		case shape[0] != task.Classes || shape[1] != task.Dim:
			continue
		}
		got, err := w.FixedNodes(ctx, c, g.local, g.state, g.scope, []graph.Node{n.L2Normalize()})
		if err != nil {
			return nil, err
		}
		return got[0], nil
	}
	return nil, fmt.Errorf("the method's class scores do not compare images with class features [%d,%d]",
		task.Classes, task.Dim)
}
