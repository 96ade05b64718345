package inference

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// ClassifierGraph returns the class scores [B,C] of a client's classifier, before softmax, in a graph whose only inputs
// depend on an image: "image" [B,D], unit rows, and other inputs of images that the method's Logits reads. All other
// values are computed now and are constants, so the text tower is not in the graph. clients is how many there were.
func ClassifierGraph(w *client.Worker, ctx context.Context, c *spec.Client, clients int,
	prompts tensor.Map) (graph.Node, error) {
	g, err := scoresOf(w, c, clients, prompts)
	if err != nil {
		return graph.Node{}, err
	}
	if err := exportable(g.scope, g.scores); err != nil {
		return g.scores, err
	}
	fixed := client.FixedParts(g.scores)
	values, err := w.FixedNodes(ctx, c, g.local, g.state, g.scope, fixed)
	if err != nil {
		return g.scores, err
	}
	return client.Replace(g.scores, fixed, func(i int) graph.Node {
		return g.scores.Graph().Const(values[i]).Cast(fixed[i].DType())
	}), g.scores.Graph().Err()
}

// scoreGraph is the graph of a client's class scores, with the towers in it.
type scoreGraph struct {
	local  *method.Local
	state  message.ClientState
	scope  *method.Scope
	scores graph.Node
}

func scoresOf(w *client.Worker, c *spec.Client, clients int, prompts tensor.Map) (g scoreGraph, err error) {
	if g.local, g.state, err = learned(w, c, clients, prompts); err != nil {
		return g, err
	}
	g.scope = method.NewScope(g.local.Task, w.Method.Params(g.local.Task))
	g.scores, err = w.Logits(c, g.scope)
	return g, err
}

// exportable refuses scores that need more than an image and what was learned.
func exportable(scope *method.Scope, scores graph.Node) error {
	in := graph.Inputs(scores)
	named := func(name string) func(graph.Node) bool {
		return func(n graph.Node) bool { return n.Name() == name }
	}
	if label, ok := scope.Graph().InputNamed("label"); ok && slices.Contains(in, label) {
		return fmt.Errorf("the method's class scores depend on the label, which a classifier does not have")
	}
	for _, h := range scope.Hosts() {
		if i := slices.IndexFunc(h.Of, spec.IsImageInput); i >= 0 && slices.ContainsFunc(in, named(method.HostInput+"/"+
			h.Name)) {
			return fmt.Errorf("this method cannot be exported: host function %s computes on %s of every image, "+
				"outside of the graph", h.Name, h.Of[i])
		}
	}
	if !slices.ContainsFunc(in, func(n graph.Node) bool { return spec.IsImageInput(n.Name()) }) {
		return fmt.Errorf("the method's class scores do not depend on the image")
	}
	return nil
}
