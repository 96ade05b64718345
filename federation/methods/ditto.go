package methods

import (
	"errors"
	"strings"

	"promptfed/federation/method"
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
//   - v starts from what the server starts with, and is unchanged in rounds that a client does not train in;
//   - lambda: 0 trains v on the client alone. Public code (PFLlib) has that for a default;
//   - the global evaluation is of w, the personal one of v;
//   - MOON around it takes v for the model that the client last had.
//
// Names: ditto/NAME, private parameters.
type Ditto struct {
	method.Method
	Lambda float64 `config:"lambda" help:"strength of the pull of the client's own model to the server's"`
}

var dittoDef = Def{Name: "ditto", Title: "Ditto", New: func() Layer { return &Ditto{Lambda: 0.1} },
	Paper: "Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021"}

func (m *Ditto) Build(inner method.Method) (method.Method, error) {
	m.Method = inner
	return *m, Join(Within("lambda", m.Lambda, 0, maxWeight), allShared(inner))
}

func (Ditto) Properties() method.Properties { return method.Properties{Mean: method.AsInside} }

func (Ditto) View() method.View { return method.PersonalView }

// dittoCopy begins the names of the client's own model.
const dittoCopy = "ditto"

func (m Ditto) Params(t method.ClientSpec) []method.Param { return withCopies(m.Method, t, dittoCopy) }

func (m Ditto) Loss(s *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(s, logits)
	own := s.Substitute(personal, func(s *method.Scope, name string) graph.Node {
		return s.Param(dittoCopy + "/" + name)
	})
	loss = loss.Add(m.Method.Loss(own, m.Method.Logits(own)))
	if m.Lambda == 0 {
		return loss
	}
	for _, name := range s.SharedNames() {
		far := own.Param(name).Sub(s.Received().Param(name))
		loss = loss.Add(own.Term("proximal", far.Square().Sum().MulScalar(m.Lambda/2)))
	}
	return loss
}

func (m Ditto) Begin(l *method.Local) error { return Join(twoModels(l), m.Method.Begin(l)) }

func (m Ditto) AdjustGradients(l *method.Local, g tensor.Map) error {
	if err := m.Method.AdjustGradients(l, g); err != nil {
		return err
	}
	return adjustCopies(m.Method, l, g, dittoCopy)
}

func (m Ditto) Finish(l *method.Local, up *method.Upload) error {
	err := m.Method.Finish(l, up)
	l.Own = l.Private.Under(dittoCopy).Clone()
	return err
}

// personal is the word for a client's own model beside the averaged one.
const personal = "personal"

// allShared refuses base methods that learn anything private, and anything but base methods.
func allShared(base method.Method) error {
	if err := besideBase(base); err != nil {
		return err
	}
	if len(SharedNames(base)) < len(base.Params(anywhere)) {
		return errors.New("it keeps a personal model on each client beside the averaged one, but the base method has " +
			"private parameters already; choose another base method")
	}
	return MustShare(base)
}

// withCopies gives a base method's parameters, and under a prefix a private copy of each, which starts alike.
func withCopies(base method.Method, t method.ClientSpec, prefix string) []method.Param {
	out := base.Params(t)
	for _, p := range base.Params(t) {
		out = append(out, method.Param{Name: prefix + "/" + p.Name, Shape: p.Shape, Owner: method.Private,
			Words: p.Words, Init: firstOf(base, t, p.Name)})
	}
	return out
}

// twoModels refuses what would let one model change the other.
func twoModels(l *method.Local) error {
	if l.Optim.ClipNorm > 0 {
		return errors.New("train.clip_norm bounds the gradients of the averaged and the personal model together; set " +
			"it to 0, or use clip_value")
	}
	return nil
}

// adjustCopies lets a base method adjust the gradients of copies as it adjusts those of its parameters.
func adjustCopies(base method.Method, l *method.Local, g tensor.Map, prefix string) error {
	own := *l
	own.Shared, own.Private, own.AuxGradients = l.Private.Under(prefix), tensor.Map{}, map[string]tensor.Map{}
	for name, grads := range l.AuxGradients {
		if of, ok := strings.CutSuffix(name, " "+personal); ok {
			own.AuxGradients[of] = grads.Under(prefix)
		}
	}
	return base.AdjustGradients(&own, g.Under(prefix))
}
