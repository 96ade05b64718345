package image

import (
	"slices"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// FedHPL learns a prompt of the image tower on each client alone, "prompt", and lets clients teach one another by class
// scores, whatever their backbones. After its steps a client uploads the mean scores [C,C] of its training examples of
// each class and their numbers. The server averages them over clients and sends the averages to all. The loss is, with
// z the scores of an example of class y and g_y those from the server,
//
//	CE(z, y) + gamma T² KL(softmax(g_y/T) ‖ softmax(z/T))
//
// Prompts stay on their clients; only scores and counts are sent.
//
// Ma et al., FedHPL: Efficient Heterogeneous Federated Learning with Prompt Tuning and Logit Distillation, arXiv
// 2405.17267; T and gamma as FedAPPR's comparison has them. There is no public code; known are its abstract and that
// l·l numbers are sent each way. Ours are:
//   - only rightly classified examples count;
//   - a client's scores weigh by how many examples they are the mean of: weighting; uniform lets each client that has
//     some count the same;
//   - every client gets the same scores, its own share among them; a class that nobody scored in a round keeps what it
//     had;
//   - the factor T² is that of Hinton et al. (2015);
//   - a linear head is learned there; here CLIP's features of the hand-written prompts (data.template) take its place.
type FedHPL struct {
	method.Base
	prompts.Visual      `config:",squash"`
	aggregate.Weighting `config:",squash"`

	Gamma float64 `config:"gamma" in:"0.." help:"weight of the distillation"`
	T     float64 `config:"temperature" in:"1e-3.." help:"T, temperature of the distillation"`
}

var fedHPLDef = layer.Def{Name: "fedhpl", Title: "FedHPL",
	Paper: "Ma et al., FedHPL: Efficient Heterogeneous Federated Learning with Prompt Tuning and Logit " +
		"Distillation, arXiv 2405.17267",
	Traffic: layer.Traffic{Formula: "l l 2", // FedAPPR's table S6
		Numbers: func(s layer.Sizes) int { return 2 * s.Classes * s.Classes }},
	Default: FedHPL{Visual: prompts.DefaultVisual, Weighting: aggregate.Examples, Gamma: 1, T: 4.5}}

// Tensors that are sent: scores [C,C] by class of the examples, and the number of examples behind each mean [C,1].
const hplLogits, hplN = "hpl/logits", "hpl/n"

// Params declares the prompt of the image tower, "prompt" (see Visual for its shape), as private: nothing is shared.
func (m FedHPL) Params(t method.ClientSpec) []method.Param {
	return m.Declare(t, "prompt", method.Private)
}

// Loss leaves the distillation out for examples of classes of which the server has no scores yet, all of them in round
// 0. Both terms are means over the batch, in which such an example counts 0 in the distillation.
func (m FedHPL) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Base.Loss(scope, logits)
	if m.Gamma == 0 {
		return loss
	}

	c := scope.Task().Classes
	own := graph.OneHot(scope.Label(), c) // [B,C]
	teacher := own.MatMul(scope.Broadcast(hplLogits, c, c)).MulScalar(1 / m.T).LogSoftmax(-1)
	student := logits.MulScalar(1 / m.T).LogSoftmax(-1)
	n := scope.Broadcast(hplN, c, 1)
	known := own.MatMul(n.Greater(n.ScalarLike(0)).Cast(graph.Float)).Reshape(-1) // [B]
	kl := teacher.Exp().Mul(teacher.Sub(student)).Sum(-1)
	return loss.Add(scope.Term("distillation", kl.Mul(known).Mean().MulScalar(m.Gamma*m.T*m.T)))
}

// Finish uploads the client's mean scores.
func (m FedHPL) Finish(local *method.Local, up *method.Upload) error {
	z, err := local.Eval(m.Logits)
	if err != nil {
		return err
	}

	classes := local.Task.Classes
	up.Extra[hplLogits], up.Extra[hplN] = aggregate.ClassMeans(local.Data.Labels(), classes, classes,
		func(example, class int) *tensor.Tensor {
			row := z.Row(example)
			if slices.Index(row.Data, slices.Max(row.Data)) != class {
				return nil
			}
			return row
		})
	return nil
}

// Extras declares the client's mean scores "hpl/logits" [C,C], a row for each class of the examples, and the number of
// examples behind each row, "hpl/n" [C,1].
func (m FedHPL) Extras(t method.ClientSpec) []method.Extra {
	return []method.Extra{{Name: hplLogits, Shape: []int{t.Classes, t.Classes}},
		{Name: hplN, Shape: []int{t.Classes, 1}, Counts: true}}
}

// Start sends scores of no class.
func (m FedHPL) Start(global *method.Global) error {
	global.Broadcast[hplLogits], global.Broadcast[hplN] = tensor.New(global.Classes,
		global.Classes), tensor.New(global.Classes, 1)
	return nil
}

// Merge averages the scores of each class.
func (m FedHPL) Merge(global *method.Global, ups []method.Upload) error {
	if err := m.Base.Merge(global, ups); err != nil {
		return err
	}
	logits, n := global.Broadcast[hplLogits].Clone(), global.Broadcast[hplN].Clone()
	global.Broadcast[hplLogits], global.Broadcast[hplN] = logits, n
	return aggregate.RenewClassMeans(logits, n, ups, hplLogits, hplN, m.Weighting.Weighting == "uniform")
}
