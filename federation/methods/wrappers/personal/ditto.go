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
//   - F is the base method's whole loss, with v in place of the shared parameters;
//   - v starts from the server's initial values, and does not change in rounds without training of its client;
//   - lambda: 0 trains v on the client alone. Public code (PFLlib) has that for a default;
//   - the global evaluation is of w, the personal one of v;
//   - MOON around it takes v for the model that the client last had.
//
// Names: ditto/NAME, private parameters.
type Ditto struct {
	method.Method
	Lambda float64 `config:"lambda" in:"0.." help:"strength of the pull of the client's own model to the server's"`
}

var dittoDef = layer.Def{Name: "ditto", Title: "Ditto",
	Paper:   "Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021",
	Suits:   allShared,
	Default: Ditto{Lambda: 0.1}}

func (Ditto) Properties() method.Properties { return method.Properties{Mean: method.InnerWeights} }

func (Ditto) View() method.View { return method.PersonalView }

// dittoCopy begins the names of the client's own model.
const dittoCopy = "ditto"

func (m Ditto) Params(t method.ClientSpec) []method.Param { return withCopies(m.Method, t, dittoCopy) }

func (m Ditto) Loss(s *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(s, logits)
	own := s.With(method.Override{Name: personal, TrainedValue: func(s *method.Scope, name string) graph.Node {
		return s.TrainedValue(dittoCopy + "/" + name)
	}})
	loss = loss.Add(m.Method.Loss(own, m.Method.Logits(own)))
	if m.Lambda == 0 {
		return loss
	}

	for _, name := range method.SharedNames(s.Params()) {
		far := own.TrainedValue(name).Sub(s.Received().TrainedValue(name))
		loss = loss.Add(own.Term("proximal", far.Square().Sum().MulScalar(m.Lambda/2)))
	}

	return loss
}

func (m Ditto) Begin(l *method.Local) error { return check.Join(twoModels(l), m.Method.Begin(l)) }

func (m Ditto) AdjustGradients(l *method.Local, g tensor.Map) error {
	if err := m.Method.AdjustGradients(l, g); err != nil {
		return err
	}
	return adjustCopies(m.Method, l, g, dittoCopy)
}

func (m Ditto) Finish(l *method.Local, up *method.Upload) error {
	err := m.Method.Finish(l, up)
	l.Own = l.Private.WithoutPrefix(dittoCopy).Clone()
	return err
}
