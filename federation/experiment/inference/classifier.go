package inference

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/engine/client"
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
	l, s, err := learned(w, c, clients, prompts)
	if err != nil {
		return graph.Node{}, err
	}
	scope := method.NewScope(l.Task, w.Method.Params(l.Task))
	scores, err := w.Logits(c, scope)
	if err != nil {
		return scores, err
	}
	if err := exportable(scope, scores); err != nil {
		return scores, err
	}
	fixed := client.FixedParts(scores)
	values, err := w.FixedNodes(ctx, c, l, s, scope, fixed)
	if err != nil {
		return scores, err
	}
	return client.Replace(scores, fixed, func(i int) graph.Node {
		return scores.Graph().Const(values[client.ValueName(i)]).Cast(fixed[i].DType())
	}), scores.Graph().Err()
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
