package spec

import (
	"slices"
	"strings"

	"promptfed/federation/method"
	"promptfed/runtime/graph"
)

// Templates lists the templates of hand-written prompts that the method reads beside the experiment's own, sorted.
func (e *Experiment) Templates(b Backbone) []string {
	var out []string
	for _, op := range graph.Reachable(e.onePass(b)) {
		list := ""
		switch what, _ := op.Placeholder(); what {
		case method.PlaceholderHand:
			list = op.Attrs.Str("templates", "")
		case method.PlaceholderText:
			list = method.PromptOf(op).Template
		}
		if list != "" {
			out = append(out, strings.Split(list, method.TemplateBreak)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
