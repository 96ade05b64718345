package inference

import (
	"context"
	"fmt"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// TextFeatures returns the class features [C,D], unit rows, that a client's class scores compare images with: the
// largest part of the scores of that shape that depends on no image. prompts are those of PromptsFile, or of
// InitialParams. A method that compares images with something else is an error.
func TextFeatures(w *client.Worker, ctx context.Context, c *spec.Client, clients int,
	prompts tensor.Map) (*tensor.Tensor, error) {
	l, s, err := learned(w, c, clients, prompts)
	if err != nil {
		return nil, err
	}
	scope := method.NewScope(l.Task, w.Method.Params(l.Task))
	scores, err := w.Logits(c, scope)
	if err != nil {
		return nil, err
	}
	for _, n := range client.FixedParts(scores) {
		shape, ok := n.Shape().Ints()
		switch {
		case !ok || len(shape) != 2 || n.DType() != graph.Float:
			continue
		case shape[0] == l.Task.Dim && shape[1] == l.Task.Classes:
			n = n.Transpose(1, 0)
		case shape[0] != l.Task.Classes || shape[1] != l.Task.Dim:
			continue
		}
		got, err := w.FixedNodes(ctx, c, l, s, scope, []graph.Node{n.L2Normalize()})
		if err != nil {
			return nil, err
		}
		return got[client.ValueName(0)], nil
	}
	return nil, fmt.Errorf("the method's class scores do not compare images with class features [%d,%d]",
		l.Task.Classes, l.Task.Dim)
}
