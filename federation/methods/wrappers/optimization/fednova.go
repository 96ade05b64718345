package optimization

import (
	"fmt"
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// FedNova takes the bias out of the mean of clients that did unequal work: a client uploads its direction, the move of
// its shared parameters over a_k, and a_k itself; the server goes a = Σ p_k a_k along the mean direction,
//
//	w <- w + (Σ p_k a_k) Σ p_k (w_k - w)/a_k.
//
// a_k is how far the steps of a turn go along a gradient that is always 1, in units of the learning rate η: the number
// of steps τ with plain SGD; (τ - ρ(1-ρ^τ)/(1-ρ))/(1-ρ) with momentum ρ; (1-(1-ημ)^τ)/(ημ) with the
// proximal term of a FedProx inside. It is made with the experiment's own optimizer, so that it is right for dampening,
// Nesterov's form and all of these together. With Adam, whose steps have one length, it is τ.
//
// Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020, eq.
// 5-6, sections 4 and 5. Notes:
//   - τ counts the steps that moved shared parameters, those that data.drop_last or a bound on steps leaves out not;
//   - a_k ignores weight decay and clipping, and the state that a shared optimizer has from other clients;
//   - with steps of one number for all it is FedAvg up to rounding;
//   - p_k: weighting;
//   - a client that lies about a_k lengthens the step of all, so that it counts at most `most` times the round's
//     median.
//
// Names: nova/a [1], in uploads; nova/a_bounded, in notes, of how many clients it was bounded.
type FedNova struct {
	method.Method
	ReportedNumber `config:",squash"`
}

var fedNovaDef = layer.Def{Name: "fednova", Title: "FedNova",
	Paper: "Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated " +
		"Optimization, NeurIPS 2020",
	Suits:   suitsFedNova,
	Default: FedNova{ReportedNumber: ReportedNumber{Weighting: aggregate.Examples, Most: 10}}}

// suitsFedNova refuses methods whose servers read what the mean of directions is not: parameters of single clients.
func suitsFedNova(m method.Method) error {
	if err := layer.RequireShared(m); err != nil {
		return err
	}
	if err := layer.RequireMean(m); err != nil {
		return fmt.Errorf("clients upload directions in place of their parameters, and %w", err)
	}
	return nil
}

// Properties takes the server's step, which needs every client's amount of work, and warns where nothing bounds it.
func (m FedNova) Properties() method.Properties {
	t := m.properties(true, "every client's amount of work")
	t.Directions = true
	return t
}

// Names of what a client uploads, and of its number of steps while a turn runs.
const (
	novaA     = "nova/a"
	novaSteps = "nova/steps"
)

// Extras declares nova/a [1], a client's a_k, beside the extras of the layers inside.
func (m FedNova) Extras(t method.ClientSpec) []method.Extra {
	return m.extras(true, m.Method.Extras(t), novaA)
}

// pull returns mu of a FedProx inside, whose proximal term has a gradient; 0 without one.
func (m FedNova) pull() float64 {
	if p, has := layer.Of[FedProx](m.Method); has && !p.Detached {
		return p.Mu
	}
	return 0
}

// work returns a_k of a turn of that many steps at a rate.
func (m FedNova) work(c optim.Config, steps int, rate float64) (float64, error) {
	c.WeightDecay, c.ClipNorm, c.ClipValue = 0, 0, 0
	o, err := optim.New(c)
	if err != nil {
		return 0, err
	}

	x, g, pull := tensor.New(1), tensor.New(1), m.pull()
	for range steps { // in units of the rate
		g.Data[0] = float32(1 + rate*pull*float64(x.Data[0]))
		if err := o.Step(tensor.Map{"x": x}, tensor.Map{"x": g}, 1); err != nil {
			return 0, err
		}
	}

	a := -float64(x.Data[0])
	if !(a > 0) || math.IsInf(a, 1) {
		return 0, fmt.Errorf("fednova: %d steps at the rate %v with mu %v make no progress (%.4g); lower the rate or "+
			"mu", steps, rate, pull, a)
	}

	return a, nil
}

// AdjustGradients counts the steps that move shared parameters.
func (m FedNova) AdjustGradients(local *method.Local, gradients tensor.Map) error {
	err := m.Method.AdjustGradients(local, gradients)
	countMoving(local, novaSteps)
	return err
}

// Finish uploads w + (w_k - w)/a_k in place of w_k, so that layers inside average directions, and a_k. Steps that make
// no progress have no direction: they are an error.
func (m FedNova) Finish(local *method.Local, up *method.Upload) error {
	if err := m.Method.Finish(local, up); err != nil {
		return err
	}

	steps, _ := local.Cache[novaSteps].(int)
	a, err := m.work(local.Optim, steps, local.LR)
	if err != nil {
		return err
	}

	up.Shared = local.Received.Clone().Axpy(1/a, difference(up.Shared, local.Received))
	up.Extra[novaA] = tensor.Of([]float32{float32(a)}, 1)
	return nil
}

// Merge lets the layers inside average the directions and goes Σ p_k a_k along the result, p_k adding up to 1.
func (m FedNova) Merge(global *method.Global, ups []method.Upload) error {
	work, err := m.numbers(global, ups, novaA, false)
	if err != nil {
		return err
	}

	old, err := m.Average(m.Method, global, ups)
	if err != nil {
		return err
	}

	sum, total := 0.0, 0.0
	for i, u := range m.Above(m.Method).Counted(ups) {
		p := float64(u.N)
		sum, total = sum+p*work[i], total+p
	}

	if total > 0 {
		global.Shared = old.Axpy(sum/total, difference(global.Shared, old))
	}

	return nil
}
