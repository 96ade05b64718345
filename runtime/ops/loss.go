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
// times the class's weight if there are weights. An example of the class number ignore_index has no weight.
func decomposeCrossEntropy(backward *call, in []node) node {
	label, weight := in[1], optional(in, 2)
	var ignored node
	if _, given := backward.Attrs["ignore_index"]; given {
		number := func(v int) node { return label.Graph().Scalar64(v).Cast(label.DType()) }
		ignored = label.Equal(number(backward.Attrs.Int("ignore_index", 0)))
		label = ignored.Where(number(0), label) // the index of a class
	}

	picked := apply("GatherElements", graph.Attrs{"axis": graph.Attr(1)}, in[0].LogSoftmax(1),
		label.Unsqueeze(1)).Squeeze(1).Neg()
	if weight.OK() {
		weight = weight.Rows(label) // of each example
		picked = picked.Mul(weight)
	}
	if ignored.OK() {
		zero, one := picked.ScalarLike(0), picked.ScalarLike(1)
		if weight.OK() {
			one = weight
		}
		picked, weight = ignored.Where(zero, picked), ignored.Where(zero, one)
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
