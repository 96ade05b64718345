package loss

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
	"promptfed/runtime/nn"
)

// FedNTD keeps the received model's knowledge of all classes but an example's own: loss + beta tau^2 KL(q, p), where q
// and p are the softmax of the received and of the present class scores divided by tau, both without the true class.
//
// Lee et al., Preservation of the Global Knowledge by Not-True Distillation in Federated Learning, NeurIPS 2022, eq.
// 3-5. The factor tau^2 is the public code's; it is 1 at the paper's tau.
//
// The paper has a whole model that the server sends. Of a base method that scores by shared and private parameters
// (FedOTP, FedPGP) the received model is what the server sent with the private part as this client had it at the start
// of the round.
type FedNTD struct {
	method.Method
	method.MeanInside // the teacher is what the server sends anyhow

	Beta float64 `config:"beta" in:"0.." help:"weight of the distillation; 0 removes it"`
	Tau  float64 `config:"tau" in:"1e-6.." help:"temperature of both distributions that are compared"`
}

var fedNTDDef = layer.Def{Name: "fedntd", Title: "FedNTD",
	Paper: "Lee et al., Preservation of the Global Knowledge by Not-True Distillation in Federated " +
		"Learning, NeurIPS 2022",
	Suits:   layer.RequireLearned("distils the received model into the learned one"),
	Default: FedNTD{Beta: 1, Tau: 1}}

// Loss adds the distillation over an example's other classes, averaged over the batch (eq. 3-5). Base methods whose
// scores read nothing shared (CoOp, FedPHA) are refused: the teacher would be the client itself.
func (m FedNTD) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	if m.Beta == 0 {
		return loss
	}

	away := graph.OneHot(scope.Label(), scope.Task().Classes).MulScalar(nn.MaskValue) // [B,C]
	rest := func(scope *method.Scope) graph.Node { return m.Method.Logits(scope).MulScalar(1 / m.Tau).Add(away) }
	teacher, student := rest(scope.Received()), rest(scope)
	if !usesShared(scope.Received(), teacher) {
		return scope.Graph().Fail("its teacher would be the client's own private parameters, since the base method's " +
			"class scores use nothing that the server averages; remove it")
	}

	kl := teacher.Softmax(-1).Mul(teacher.LogSoftmax(-1).Sub(student.LogSoftmax(-1))).Sum(-1).Mean()
	return loss.Add(scope.Term("not-true distillation", kl.MulScalar(m.Beta*m.Tau*m.Tau)))
}
