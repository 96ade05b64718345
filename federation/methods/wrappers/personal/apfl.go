package personal

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/check"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// APFL mixes a client's own model v with its copy w of the averaged one: m = a v + (1-a) w. Each step trains w on its
// own loss, v on that of the mix, and if alpha_lr is set a as well,
//
//	w <- w - η ∇F(w), v <- v - η a ∇F(m), a <- a - alpha_lr <v - w, ∇F(m)>, within [0,1],
//
// all from the values of the previous step. The server averages w and sees nothing else; a client is tested with m.
//
// Deng, Kamani, Mahdavi, Adaptive Personalized Federated Learning, arXiv 2003.13461, algorithm 1, eq. 9-10. Notes:
//   - a starts at alpha on every client; the paper tries 0.25, 0.5 and 0.75 and adapts it once a round;
//   - public code (PFLlib) trains v on its own loss, starts with a = 1 and replaces v by the mix after every round;
//   - a text or image tower runs once for w and once for m;
//   - weight decay pulls v to 0 at the rate η, not at a η; a has none;
//   - alpha: 0 tests w; with alpha: 1 v is trained on the client alone.
//
// Names: apfl/NAME, private parameters; apfl/a [1], which a client keeps where it changes.
type APFL struct {
	method.Method
	method.MeanInside // the layers inside see w alone

	Alpha   float64 `config:"alpha" in:"0..1" help:"a, weight of the client's own model in the mix"`
	AlphaLR float64 `config:"alpha_lr" in:"0.." help:"learning rate of a; 0 keeps it constant"`
}

var apflDef = layer.Def{Name: "apfl", Title: "APFL",
	Paper:   "Deng et al., Adaptive Personalized Federated Learning, arXiv 2003.13461",
	Suits:   allShared,
	Default: APFL{Alpha: 0.5}}

// View is personal: clients are tested with their mixes m.
func (APFL) View() method.View { return method.PersonalView }

// Names of the client's own model and of its weight.
const (
	apflCopy = "apfl"
	apflA    = "apfl/a"
)

// Params declares beside the base method's parameters w a private copy of each, apfl/NAME, that begins at the value
// which the server gives it.
func (m APFL) Params(t method.ClientSpec) []method.Param { return withCopies(m.Method, t, apflCopy) }

// Loss is the base method's whole loss with w, and once more with m, in which the gradient goes to v alone.
func (m APFL) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	mix := scope.With(method.Override{Name: personal, TrainedValue: func(scope *method.Scope, name string) graph.Node {
		v, w := scope.TrainedValue(apflCopy+"/"+name), scope.TrainedValue(name)
		// a v + (1-a) w, of which v gets the whole gradient; AdjustGradients weighs it.
		return v.Add(w.Sub(v).Mul(scope.Graph().Scalar(1).Sub(scope.Scalar(apflA))).Detach())
	}})
	return loss.Add(m.Method.Loss(mix, m.Method.Logits(mix)))
}

// Begin sets a to what the client kept, else to alpha. It refuses train.clip_norm, which would shorten the gradients of
// w and v together.
func (m APFL) Begin(local *method.Local) error {
	local.Scalars[apflA] = m.Alpha
	if t := local.State[apflA]; t != nil {
		local.Scalars[apflA] = float64(t.Data[0])
	}
	return check.Join(twoModels(local), m.Method.Begin(local))
}

// AdjustGradients lets the base method adjust the gradients of w and those of v, multiplies those of v by a, and makes
// the step of a, within [0,1].
func (m APFL) AdjustGradients(local *method.Local, g tensor.Map) error {
	if err := check.Join(m.Method.AdjustGradients(local, g), adjustCopies(m.Method, local, g, apflCopy)); err != nil {
		return err
	}

	a, slope := local.Scalars[apflA], 0.0
	for _, name := range local.Shared.Names() {
		d := g[apflCopy+"/"+name]
		for i, x := range d.Data {
			difference := float64(local.Private[apflCopy+"/"+name].Data[i]) - float64(local.Shared[name].Data[i])
			slope += float64(x) * difference
		}
		linalg.Scale(d, a)
	}

	local.Scalars[apflA] = min(1, max(0, a-m.AlphaLR*slope))
	return nil
}

// Finish makes m the client's own model for tests, and keeps a where it is learned. v and a stay on the client.
func (m APFL) Finish(local *method.Local, up *method.Upload) error {
	err := m.Method.Finish(local, up)
	a := local.Scalars[apflA]
	local.Own = local.Private.WithoutPrefix(apflCopy).Clone().Scale(a).Axpy(1-a, local.Shared)
	if m.AlphaLR > 0 {
		local.State[apflA] = tensor.Of([]float32{float32(a)}, 1)
	}
	return err
}
