package adapters

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/modules"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// FedCLIP learns no prompt but an adapter of image features f, which weighs their channels by attention,
//
//	f' = f ⊙ softmax(L2(tanh(L1(f)))),
//
// and averages it; the class features are those of "a picture of a {class}" and stay fixed. It trains on CLIP's own
// loss (loss: contrastive): in a batch, each image belongs to the text of its own class at its own place alone, and the
// cross entropies of images over texts and of texts over images are averaged. Two examples of one class in a batch thus
// push each other away, as in the authors' code. loss: ce is cross entropy over all classes instead.
//
// Lu, Hu, Wang, Xie, FedCLIP: Fast Generalization and Personalization for CLIP in Federated Learning, IEEE Data
// Engineering Bulletin 2023, eq. 5-9, algorithm 1. Notes:
//   - adapters are averaged with equal weights, as in the code (weighting: uniform), or by examples;
//   - the code feeds the adapter CLIP's unnormalised features, whose norm is about 10; only unit rows are kept here;
//   - the paper trains with Adam, lr 5e-5, betas 0.9 and 0.98, eps 1e-6, weight decay 0.2, batches of 32, which are
//     settings of train, not of the method; the code keeps the average that did best on validation data, this program
//     the last;
//   - all clients need backbones of one embedding dimension D.
type FedCLIP struct {
	aggregate.WeightedMean `config:",squash"`

	Objective string `config:"loss" in:"contrastive|ce" help:"contrastive or ce (cross entropy)"`
}

var fedCLIPDef = layer.Def{Name: "fedclip", Title: "FedCLIP",
	Paper:   "Lu et al., FedCLIP: Fast Generalization and Personalization for CLIP, IEEE Data Eng. Bull. 2023",
	Default: FedCLIP{Objective: "contrastive", WeightedMean: aggregate.UniformMean}}

// Params declares the two layers of the adapter, "adapter/1" and "adapter/2", weights "/w" [D,D], biases "/b" [D]. All
// are shared.
func (m FedCLIP) Params(t method.ClientSpec) []method.Param {
	return append(modules.Linear("adapter/1", t.Dim, t.Dim), modules.Linear("adapter/2", t.Dim, t.Dim)...)
}

// Start draws the initial adapter as torch.nn.Linear does: weights and biases uniform within 1/√D.
func (m FedCLIP) Start(global *method.Global) error {
	modules.InitLayers(global.Seed, global.Shared, "adapter")
	return nil
}

// adapted returns the image features [B,D] behind the adapter, unit rows.
func (m FedCLIP) adapted(scope *method.Scope) graph.Node {
	f := scope.Image()
	hidden := modules.ApplyLinear(scope, "adapter/1", f).Tanh()
	return modules.ApplyLinear(scope, "adapter/2", hidden).Softmax(-1).Mul(f).L2Normalize()
}

func texts(scope *method.Scope) graph.Node { return scope.HandText("a picture of a {}") }

// Logits compares the adapted image features f' with the fixed class features of "a picture of a {class}".
func (m FedCLIP) Logits(scope *method.Scope) graph.Node {
	return scope.Cosine(m.adapted(scope), texts(scope))
}

// Loss is the contrastive loss of the batch, which does not read the logits, or with loss: ce their cross entropy.
func (m FedCLIP) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	if m.Objective == "ce" {
		return m.WeightedMean.Loss(scope, logits)
	}
	return contrastive(scope, m.adapted(scope), texts(scope))
}

// contrastive returns CLIP's loss in a batch of images [B,D], each with the text of its own class of [C,D]: the mean of
// the cross entropies of images over texts and of texts over images.
func contrastive(scope *method.Scope, image, text graph.Node) graph.Node {
	pairs := scope.Cosine(image, text.Rows(scope.Label())) // [B,B]
	own := pairs.Mul(scope.Graph().Apply(graph.Standard, "EyeLike", nil, pairs.Detach())).Sum(-1)
	// The cross entropy of the diagonal, log Σ e^(pairs-own), in both directions.
	ofImages, ofTexts := nn.LogSumExp(pairs.Sub(own.Unsqueeze(1)), 1), nn.LogSumExp(pairs.Sub(own.Unsqueeze(0)), 0)
	return scope.Term("cross entropy of images",
		ofImages.Mean().MulScalar(0.5)).Add(scope.Term("cross entropy of texts", ofTexts.Mean().MulScalar(0.5)))
}
