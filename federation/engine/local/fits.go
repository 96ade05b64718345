package local

import (
	"fmt"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Fits finds class scores and losses that a client with a backbone cannot have, such as those of prompts that are longer, with a
// class name, than the context of the text tower. Nothing is compiled, and no data is read.
func Fits(e *spec.Experiment, b spec.Backbone, client, clients int) error {
	t := b.Task()
	t.Client, t.Clients, t.Classes, t.Backbone = client, clients, len(e.Classes), b.Name()
	s := method.NewScope(t, e.Method.Params(t))
	scores := e.Method.Logits(s)
	loss := e.Method.Loss(s, scores)
	err := s.Graph().Err()
	if err == nil {
		hand := func(string) (*tensor.Tensor, error) { return tensor.New(len(e.Classes), t.Dim), nil }
		_, err = lower(b, e.Classes, hand, []graph.Node{scores, loss})
	}
	if err != nil {
		return fmt.Errorf("client %d on %s: %w", client, b.Name(), err)
	}
	return nil
}
