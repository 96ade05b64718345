package engine

import (
	"context"
	"fmt"
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Classifier gives what a client learned as class scores [B,C], before softmax, in a graph whose only inputs are those
// that depend on an image: "image" [B,D], unit rows, and whatever else the method's Logits asks for of it. All the rest
// is computed now and becomes constants, so the text tower is not in the graph. clients is how many there were.
func (w *Worker) Classifier(ctx context.Context, c *Client, clients int, prompts tensor.Map) (graph.Node, error) {
	l, s, err := w.learned(c, clients, prompts)
	if err != nil {
		return graph.Node{}, err
	}
	scope := method.NewScope(l.Task, w.Method.Params(l.Task))
	scores, err := w.c.lowered(c.Backbone, w.Method.Logits(scope))
	if err != nil {
		return scores, err
	}
	if err := exportable(scope, scores); err != nil {
		return scores, err
	}
	fixed := fixedParts(scores)
	values, err := w.evaluate(ctx, c, l, s, scope, fixed)
	if err != nil {
		return scores, err
	}
	return replace(scores, fixed, func(i int) graph.Node {
		return scores.Graph().Const(values[valueName(i)]).Cast(fixed[i].DType())
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
		if i := slices.IndexFunc(h.Of, ofImage); i >= 0 && slices.ContainsFunc(in, named(method.HostInput+"/"+h.Name)) {
			return fmt.Errorf("host function %s reads %s of every image, which no graph can compute; this method "+
				"cannot be exported", h.Name, h.Of[i])
		}
	}
	if !slices.ContainsFunc(in, func(n graph.Node) bool { return ofImage(n.Name()) }) {
		return fmt.Errorf("the method's class scores do not depend on the image")
	}
	return nil
}

// evaluate computes nodes that do not depend on an image.
func (w *Worker) evaluate(ctx context.Context, c *Client, l *method.Local, s State, scope *method.Scope,
	nodes []graph.Node) (tensor.Map, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	// ONNX Runtime runs no graph without an input, and everything here may be constant.
	one := scope.Graph().Input("one", graph.Float, graph.Static(1))
	out := []graph.Output{{Name: "one again", Node: one}}
	for i, n := range nodes {
		if n.DType() == graph.Bool {
			n = n.Cast(graph.Int64)
		}
		out = append(out, graph.Output{Name: valueName(i), Node: n})
	}
	p, err := w.c.compile(c.Backbone, scope, out)
	if err != nil {
		return nil, err
	}
	batch := tensor.Map{"one": tensor.Of([]float32{1}, 1)}
	feed, err := inputs{l: l, s: s, now: both(l), batch: batch}.feed(p, hosts{}, 0)
	if err != nil {
		return nil, err
	}
	return p.session.Run(ctx, feed)
}
