package loss

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// represent returns unit rows by which models are compared, in one scope: a batch's class scores [B,C] (of: logits),
// the class features that the base method scores (text) or those of its shared prompts (prompt) [C,D], or the image
// features that it scores (image) [B,D]. For a base method that does not score by Scope.Cosine, text is prompt.
func represent(m method.Method, scope *method.Scope, what string) graph.Node {
	var firstImage, firstText graph.Node // that Scope.Cosine compares first
	logits := m.Logits(scope.With(method.Override{Cosine: func(scope *method.Scope, image, text graph.Node) graph.Node {
		if !firstImage.OK() {
			firstImage, firstText = image, text
		}
		return scope.Cosine(image, text)
	}}))

	switch {
	case what == "logits":
		return logits.L2Normalize()
	case what == "image" && firstImage.OK():
		return firstImage
	case what == "text" && firstText.OK():
		return firstText
	}

	var texts []graph.Node
	for _, p := range scope.Params() {
		if p.Owner == method.Shared && slices.Contains(sharedPromptNames, p.Name) {
			texts = append(texts, scope.Text(prompts.FullPrompt(scope, p)))
		}
	}

	if what == "image" || texts == nil {
		return scope.Graph().Fail("of: %s does not exist in this base method; use another", what)
	}

	return graph.Concat(0, texts...)
}

// uses reports whether a node depends on a parameter of the scope that ok accepts.
func uses(scope *method.Scope, n graph.Node, ok func(method.Param) bool) bool {
	read := scope.Reads(n)
	return slices.ContainsFunc(scope.Params(), func(p method.Param) bool {
		return ok(p) && slices.Contains(read, method.InputOf(scope.TrainedValue(p.Name)))
	})
}

// usesShared reports whether a node depends on shared parameters.
func usesShared(scope *method.Scope, n graph.Node) bool {
	return uses(scope, n, func(p method.Param) bool { return p.Owner == method.Shared })
}
