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

func Reads(m method.Method, task method.ClientSpec) []string {
	s := method.NewScope(task, m.Params(task))
	logits := m.Logits(s)
	var out []string
	for _, n := range graph.Inputs(logits, m.Loss(s, logits)) {
		if slices.Contains(LargeInputs, n.Name()) {
			out = append(out, n.Name())
		}
	}
	slices.Sort(out)
	return out
}

// Sentence puts a class name into a template such as "a photo of a {}.".
func Sentence(template, class string) string { return strings.ReplaceAll(template, "{}", class) }

// LargeInputs lists the inputs of a batch that are kept only for methods that read them.
var LargeInputs = []string{method.PatchesInput, method.TokensInput, method.PixelsInput}

// IsImageInput reports whether an input of a method's graph is part of a batch; all others have a kind and a slash in
// front.
func IsImageInput(input string) bool { return !strings.Contains(input, "/") }

// UsesMemory reports whether a method's class scores read the client's own examples.
func UsesMemory(m method.Method, task method.ClientSpec) bool {
	s := method.NewScope(task, m.Params(task))
	return slices.ContainsFunc(graph.Inputs(m.Logits(s)),
		func(n graph.Node) bool { return n.Name() == method.MemoryImage })
}
