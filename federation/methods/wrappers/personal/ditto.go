package personal

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// Ditto trains a model of its own on each client beside the one that is averaged, and keeps it near what the server
// sent: F(v) + lambda/2 |v - w_t|². The averaged model is trained as without it, on the same batches; the server sees
// nothing of v.
//
// Li, Hu, Beirami, Smith, Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021, eq. 1,
// algorithm 1. Notes:
//   - both models make the steps of train, with the same optimizer settings; the paper has a number of steps and a rate
//     for each. A text or image tower runs once for each of the two;
//   - lambda: 0 trains v on the client alone. Public code (PFLlib) has that for a default;
//   - MOON around it takes v for the model that the client last had.
//
// Names: ditto/NAME, private parameters.
type Ditto struct {
	method.Method
	method.MeanInside // the layers inside see w alone

	Lambda float64 `config:"lambda" in:"0.." help:"strength of the pull of the client's own model to the server's"`
}

var dittoDef = layer.Def{Name: "ditto", Title: "Ditto",
	Paper:   "Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021",
	Suits:   allShared,
	Default: Ditto{Lambda: 0.1}}

// View is personal: the global evaluation is of w, the personal one of v.
func (Ditto) View() method.View { return method.PersonalView }

// dittoCopy begins the names of the client's own model.
const dittoCopy = "ditto"

// Params declares beside the base method's parameters a private copy of each, ditto/NAME: v starts from the server's
// initial values, and does not change in rounds without training of its client.
func (m Ditto) Params(t method.ClientSpec) []method.Param { return withCopies(m.Method, t, dittoCopy) }

// Loss is the base method's whole loss twice, once with v in place of the shared parameters, and lambda/2 |v - w_t|²
// (eq. 1). No term has gradients for both models.
func (m Ditto) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	own := scope.With(method.Override{Name: personal, TrainedValue: func(scope *method.Scope, name string) graph.Node {
		return scope.TrainedValue(dittoCopy + "/" + name)
	}})
	loss = loss.Add(m.Method.Loss(own, m.Method.Logits(own)))
	if m.Lambda == 0 {
		return loss
	}

	for _, name := range method.SharedNames(scope.Params()) {
		far := own.TrainedValue(name).Sub(scope.Received().TrainedValue(name))
		loss = loss.Add(own.Term("proximal", far.Square().Sum().MulScalar(m.Lambda/2)))
	}

	return loss
}

// Begin refuses train.clip_norm, which would shorten the gradients of w and v together.
func (m Ditto) Begin(local *method.Local) error {
	return check.Join(twoModels(local), m.Method.Begin(local))
}

// AdjustGradients lets the base method adjust the gradients of w, and those of v in the same way.
func (m Ditto) AdjustGradients(local *method.Local, g tensor.Map) error {
	if err := m.Method.AdjustGradients(local, g); err != nil {
		return err
	}
	return adjustCopies(m.Method, local, g, dittoCopy)
}

// Finish makes v the client's own model for tests; the upload has w alone.
func (m Ditto) Finish(local *method.Local, up *method.Upload) error {
	err := m.Method.Finish(local, up)
	local.Own = local.Private.WithoutPrefix(dittoCopy).Clone()
	return err
}
