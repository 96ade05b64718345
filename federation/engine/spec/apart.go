package spec

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// NotBatchable returns why the graphs of several clients are no faster in one run. It is empty where prompts of several
// clients can go through the text tower in one pass, and no tower reads rows of data, since these fill a run by
// themselves.
func NotBatchable(roots ...graph.Node) (why string) {
	why = "no learned prompt goes through the text tower"
	for _, op := range graph.Reachable(roots...) {
		switch op.Placeholder().(type) {
		case method.PromptedImages:
			return "the image tower runs in every step"
		case method.Prompt:
			if slices.ContainsFunc(graph.Inputs(op.In...), func(n graph.Node) bool { return IsImageInput(n.Name()) }) {
				return "the text tower runs for each image"
			}
			if len(op.In) > 0 {
				why = ""
			}
		}
	}
	return why
}

// NotBatchable returns why clients on a backbone train separately although Experiment.BatchClients lets them train
// together; empty where they train together.
func (e *Experiment) NotBatchable(b Backbone) string {
	if e.BatchClients <= 1 {
		return ""
	}
	if e.Training.Shared {
		return "clients share one optimizer"
	}
	logits, loss := e.onePass(b)
	return NotBatchable(logits, loss)
}

// onePass returns the class scores and the loss of the first client on a backbone; towers are placeholders.
func (e *Experiment) onePass(b Backbone) (logits, loss graph.Node) {
	t := TaskOf(b, 0, 1, len(e.Classes))
	s := method.NewScope(t, e.Method.Params(t))
	logits = e.Method.Logits(s)
	return logits, e.Method.Loss(s, logits)
}
