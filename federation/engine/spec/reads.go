package spec

import (
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// Reads returns the result of Worker.Reads before an experiment has clients.
func (e *Experiment) Reads(b Backbone) []string {
	return Reads(e.Method, TaskOf(b, 0, 1, len(e.Classes)))
}

// Reads returns those of LargeInputs that a method's class scores or loss read for a client, sorted. It builds the
// graph to find out.
func Reads(m method.Method, task method.ClientSpec) []string {
	_, logits, loss := method.LossOf(m, task)
	out := LargeInputsOf(method.Inputs(logits, loss))
	slices.Sort(out)
	return out
}

// Sentence puts a class name into a template such as "a photo of a {}.".
func Sentence(template, class string) string { return strings.ReplaceAll(template, "{}", class) }

// LargeInputs lists the rows of a batch that are kept only for methods that read them.
var LargeInputs = []string{method.PatchesInput, method.TokensInput, method.PixelsInput}

// LargeInputsOf lists the LargeInputs among some inputs.
func LargeInputsOf(inputs []method.Input) (out []string) {
	for _, in := range inputs {
		if in.Kind == method.RowInput && slices.Contains(LargeInputs, in.Name) {
			out = append(out, in.Name)
		}
	}
	return out
}

// IsRow reports whether an input is rows of a batch.
func IsRow(in method.Input) bool { return in.Kind == method.RowInput }

// UsesMemory reports whether a method's class scores read the client's own examples.
func UsesMemory(m method.Method, task method.ClientSpec) bool {
	scope := method.ScopeOf(m, task)
	return slices.Contains(method.Inputs(m.Logits(scope)), method.MemoryImage)
}

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
			if slices.ContainsFunc(method.Inputs(op.In...), IsRow) {
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
	return NotBatchable(e.onePass(e.scope(b)))
}

// scope starts a graph of the first client on a backbone.
func (e *Experiment) scope(b Backbone) *method.Scope {
	return method.ScopeOf(e.Method, TaskOf(b, 0, 1, len(e.Classes)))
}

// onePass returns the class scores and the loss of a client; towers are placeholders.
func (e *Experiment) onePass(scope *method.Scope) (logits, loss graph.Node) {
	logits = e.Method.Logits(scope)
	return logits, e.Method.Loss(scope, logits)
}

// Templates lists the templates of hand-written prompts that the method reads besides the experiment's own, sorted.
func (e *Experiment) Templates(b Backbone) []string {
	var out []string
	for _, op := range graph.Reachable(e.onePass(e.scope(b))) {
		switch p := op.Placeholder().(type) {
		case method.HandTexts:
			out = append(out, p.Templates...)
		case method.Prompt:
			if p.Template != "" {
				out = append(out, p.Template)
			}
		}
	}

	slices.Sort(out)
	return slices.Compact(out)
}
