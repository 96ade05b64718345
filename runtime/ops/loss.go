package ops

import (
	"fmt"

	"promptfed/runtime/graph"
)

func init() {
	graph.Register(def{Kind: "SoftmaxCrossEntropyLoss", MinInputs: 2, MinRank: 2, Infer: inferCrossEntropy,
		Attrs: "ignore_index int, reduction string", Decompose: decomposeCrossEntropy})
}

// inferCrossEntropy takes scores [N,C,...] and class numbers [N,...]. The second output are the logarithms of the
// probabilities.
func inferCrossEntropy(inference *infer) error {
	scores, label := inference.In[0].Shape(), inference.In[1].Shape()
	reduction := inference.Attrs.Str("reduction", "mean")
	switch {
	case scores != nil && len(scores) < 2, scores != nil && label != nil && len(label) != len(scores)-1:
		return fmt.Errorf("scores %v for classes %v", scores, label)
	case reduction != "mean" && reduction != "sum" && reduction != "none":
		return fmt.Errorf("reduction is %q", reduction)
	case len(inference.Out) > 1:
		inference.SetType(1, inference.In[0].DType())
		inference.SetOutput(1, scores)
	}

	if reduction == "none" {
		return inference.Set(label)
	}

	return inference.Set(graph.Shape{})
}

// decomposeCrossEntropy takes the logarithm of the probability of each class number, as PyTorch's cross_entropy,
// times the class's weight if there are weights.
func decomposeCrossEntropy(backward *call, in []node) node {
	if backward.Attrs.Int("ignore_index", -1) >= 0 {
		return backward.FailNode("an ignore_index of a class is not supported")
	}

	picked := apply("GatherElements", graph.Attrs{"axis": graph.Attr(1)}, in[0].LogSoftmax(1),
		in[1].Unsqueeze(1)).Squeeze(1).Neg()
	weight := optional(in, 2)
	if weight.OK() {
		weight = weight.Rows(in[1]) // of each example
		picked = picked.Mul(weight)
	}

	switch backward.Attrs.Str("reduction", "mean") {
	case "none":
		return picked
	case "sum":
		return picked.Sum()
	}

	if weight.OK() {
		return picked.Sum().Div(weight.Sum())
	}

	return picked.Mean()
}
