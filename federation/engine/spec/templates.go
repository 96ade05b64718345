package spec

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// Templates lists the templates of hand-written prompts that the method reads besides the experiment's own, sorted.
func (e *Experiment) Templates(b Backbone) []string {
	var out []string
	for _, op := range graph.Reachable(e.onePass(b)) {
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
