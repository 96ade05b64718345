package methodtest

import (
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/wrappers/robust"
	"promptfed/runtime/graph"
)

// overrides: an override that gives the values that it replaces leaves class scores and loss, and so the loss's
// gradients, the same nodes. One that gives other values changes them exactly where it is used. A wrapper that replaces
// the label loss refuses a method that does not use it.
func (c Case) overrides(t *testing.T) {
	experiment := c.experiment(t)
	build := func(scope *method.Scope) [2]graph.Node {
		logits := experiment.Method.Logits(scope)
		return [2]graph.Node{logits, experiment.Method.Loss(scope, logits)}
	}

	scope := method.ScopeOf(experiment.Method, experiment.Task(experiment.Clients[0]))
	want := build(scope)

	same := scope.With(method.Override{TrainedValue: (*method.Scope).TrainedValue, Vision: (*method.Scope).Vision,
		Cosine: (*method.Scope).Cosine, LabelLoss: (*method.Scope).LabelLoss})
	if build(same) != want {
		t.Error("equal values make other nodes")
	}

	labels := scope.With(method.Override{LabelLoss: func(scope *method.Scope, logits graph.Node) graph.Node {
		return scope.LabelLoss(logits).Neg()
	}})
	for what, other := range map[string]*method.Scope{"label loss": labels,
		"parameters": scope.With(method.Override{Name: "other", TrainedValue: func(scope *method.Scope,
			at string) graph.Node {
			x := scope.TrainedValue(at)
			return scope.Input(method.Input{Kind: "other", Name: at}, x.DType(), x.Shape())
		}}),
		"image features": scope.With(method.Override{Vision: func(scope *method.Scope,
			p method.VisionPrompts) graph.Node {
			return scope.Vision(p).Neg()
		}}),
		"class scores": scope.With(method.Override{Cosine: func(scope *method.Scope, x, t graph.Node) graph.Node {
			return scope.Cosine(x, t).Neg()
		}})} {
		if changed := build(other) != want; other.Used() != changed {
			t.Errorf("another %s changes nodes: %v; it is used: %v", what, changed, other.Used())
		}
	}

	robust.GCE{Method: experiment.Method, Q: 0.5}.Loss(scope, want[0])
	if err := scope.Graph().Err(); (err == nil) != labels.Used() {
		t.Errorf("the label loss is used: %v; a wrapper that replaces it says %v", labels.Used(), err)
	}
}
