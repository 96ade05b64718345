package personalized

import (
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
)

// UOPP averages one text prompt, "general", and keeps one on every client, "expert", and weighs the expert by its
// certainty: with h(x) the entropy of the expert's class probabilities divided by its largest value, log C,
//
//	logits = h(x) general logits + (1 - h(x)) expert logits.
//
// OUR ADAPTATION of Ma'sum et al., UOPP, ICLR 2025, for federated few-shot class-incremental learning: its general and
// expert prompts, in the manner of DualPrompt, join a vision transformer and a stream of classes, and uncertainty
// decides what is trusted. Of that the two kinds of prompts and their weighting by uncertainty remain, on the text side
// and without a stream.
type UOPP struct {
	method.FedAvg
	prompts.Context `config:",squash"`
}

var uoppDef = layer.Def{Name: "uopp", Title: "UOPP (adapted)",
	Paper:   "after Ma'sum et al., UOPP, ICLR 2025",
	Default: UOPP{Context: prompts.DefaultContext}}

// Params declares "general", shared, and "expert", private, both [tokens,w].
func (m UOPP) Params(t method.ClientSpec) []method.Param {
	return append(m.Declare(t, "general", method.Shared), m.Declare(t, "expert", method.Private)...)
}

func (m UOPP) of(scope *method.Scope, name string) graph.Node {
	return scope.Cosine(scope.Image(), m.Features(scope, scope.Param(name)))
}

// Logits mixes the scores of the two prompts image by image. The entropy that weighs them has a gradient too.
func (m UOPP) Logits(scope *method.Scope) graph.Node {
	general, expert := m.of(scope, "general"), m.of(scope, "expert")
	doubt := expert.Softmax(-1).Mul(expert.LogSoftmax(-1)).SumKeep(-1).MulScalar(-1 / math.Log(max(2,
		float64(scope.Task().Classes))))
	return expert.Add(doubt.Mul(general.Sub(expert)))
}

// Loss is the sum of the cross entropies of the mixed, the general and the expert logits.
func (m UOPP) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	return scope.CrossEntropy(logits, "mixture").Add(scope.CrossEntropy(m.of(scope, "general"),
		"general")).Add(scope.CrossEntropy(m.of(scope, "expert"), "expert"))
}
