package robust

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
)

// GCE replaces cross entropy by the generalised cross entropy (1 - p^q)/q, p being the softmax of the label's class,
// averaged over the batch: a wrong label, whose p is small, pulls less. At q = 1 it is 1-p, half of the mean absolute
// error of the softmax, which is symmetric over classes and bounded; as q goes to 0 it becomes -log p, cross entropy,
// which q: 0 leaves in place.
//
// Zhang and Sabuncu, Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels, NeurIPS 2018,
// eq. 6, with q 0.7 as there.
type GCE struct {
	method.Method
	method.MeanInside // only the clients' loss is another

	Q float64 `config:"q" in:"0..1" help:"q of the loss (1 - p^q)/q: 1 is 1-p, 0 keeps cross entropy"`
}

var gceDef = layer.Def{Name: "gce", Title: "generalised cross entropy",
	Paper: "Zhang and Sabuncu, Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels, " +
		"NeurIPS 2018",
	Suits:   layer.RequireLearned("changes the loss"),
	Default: GCE{Q: 0.7}}

// Loss replaces every cross entropy of the layers inside that they take from method.Scope (eq. 6), and keeps its name
// in the list of terms. Layers that take none from there, and losses of a sigmoid, fail the graph.
func (m GCE) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	if m.Q == 0 {
		return m.Method.Loss(scope, logits)
	}
	return fitted(m.Method, scope, logits, func(logp graph.Node) graph.Node { return generalised(logp, m.Q) })
}

// generalised returns (1 - p^q)/q of log p [B].
func generalised(logp graph.Node, q float64) graph.Node {
	return logp.MulScalar(q).Exp().Neg().AddScalar(1).MulScalar(1 / q)
}

// fitted returns the loss of a method with another loss in place of cross entropy: the mean of a function of log p [B],
// p being the softmax of the label's class.
func fitted(inner method.Method, scope *method.Scope, logits graph.Node,
	example func(logp graph.Node) graph.Node) graph.Node {
	if scope.Task().Sigmoid {
		return scope.Graph().Fail("it replaces the cross entropy of a softmax; set train.loss: softmax")
	}

	fit := scope.With(method.Override{LabelLoss: func(_ *method.Scope, logits graph.Node) graph.Node {
		return example(logits.LogSoftmax(-1).Mul(graph.OneHot(scope.Label(), logits.Dim(-1))).Sum(-1)).Mean()
	}})
	loss := inner.Loss(fit, logits)
	if !fit.Used() {
		return scope.Graph().Fail("the methods inside fit labels by a loss of their own, which cannot be replaced; " +
			"remove this wrapper, or choose another base method")
	}

	return loss
}
