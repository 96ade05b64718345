package optimization

import (
	"promptfed/federation/method"
	"promptfed/federation/methods/parts/aggregate"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
)

// FedDyn regularises each client's loss so that its optima line up with the federation's: loss - <h_i, w> +
// alpha/2 |w - w_t|^2, with h_i <- h_i - alpha (w_i - w_t) after the round. The server keeps
// h <- h - alpha/N Σ_i (w_i - w_t) over a round's clients, N being all that may train, and sends mean_i w_i - h/alpha.
//
// Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021, algorithm 1, eq. 1-2. h_i stands for the
// gradient ∇L_i(w_i). Where there is a choice:
//   - weighting: uniform is the paper's mean; examples is FedAvg's, which the base method has.
//
// Names: dyn/h/NAME, of a client in what it keeps and of the server in what stays there.
type FedDyn struct {
	method.Method
	aggregate.Weighting `config:",squash"`

	Alpha float64 `config:"alpha" in:"0|1e-9.." help:"strength of the regulariser; 0 removes it"`
}

var fedDynDef = layer.Def{Name: "feddyn", Title: "FedDyn",
	Paper:   "Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021",
	Suits:   layer.RequireShared,
	Default: FedDyn{Weighting: aggregate.Uniform, Alpha: 0.1}}

// Properties takes both the correction of drift and the server's step, which other layers then cannot have. Weights by
// examples make the server need every upload, since its state h is a plain sum of moves.
func (m FedDyn) Properties() method.Properties {
	t := method.Properties{Mean: method.Weights(m.Weighting.Weighting), Roles: map[method.Role]string{
		method.DriftCorrection: "", method.ServerStep: ""}}
	if m.Alpha > 0 && t.Mean != method.Uniform {
		t.Mean, t.Needs = "", "the unweighted mean of the clients' moves for its state; set weighting: uniform"
	}
	return t
}

// dynH names the states of clients and of the server.
const dynH = "dyn/h"

// Loss adds -<h_i, w> and alpha/2 |w - w_t|² over all shared parameters to the loss inside (algorithm 1).
func (m FedDyn) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	if m.Alpha == 0 {
		return loss
	}

	var moves []graph.Node
	for _, name := range method.SharedNames(scope.Params()) {
		w := scope.TrainedValue(name)
		loss = loss.Add(scope.Term("dynamic linear", w.Mul(scope.State(dynH+"/"+name, sizes(w)...)).Sum().Neg()))
		moves = append(moves, w.Sub(scope.Received().TrainedValue(name)).Reshape(-1))
	}

	far := graph.Concat(0, moves...)
	return loss.Add(scope.Term("dynamic quadratic", far.Square().Sum().MulScalar(m.Alpha/2)))
}

func sizes(n graph.Node) []int {
	s, _ := n.Shape().Ints()
	return s
}

// Begin gives a client that trains for the first time an h_i of zeros.
func (m FedDyn) Begin(local *method.Local) error {
	if m.Alpha > 0 {
		zerosLike(local.Shared, local.State, dynH)
	}
	return m.Method.Begin(local)
}

// Finish moves h_i, which stays on the client, by -alpha (w_i - w_t).
func (m FedDyn) Finish(local *method.Local, up *method.Upload) error {
	if m.Alpha > 0 {
		local.State.Put(dynH, local.State.WithoutPrefix(dynH).Axpy(-m.Alpha, difference(local.Shared, local.Received)))
	}
	return m.Method.Finish(local, up)
}

// Merge lets the layers inside average, moves h, which begins at zeros, by the round's moves over N, and subtracts
// h/alpha from the mean. An upload that stands for several clients counts that many times.
func (m FedDyn) Merge(global *method.Global, ups []method.Upload) error {
	old, err := m.Average(m.Method, global, ups)
	if err != nil || m.Alpha == 0 {
		return err
	}

	zerosLike(global.Shared, global.State, dynH)
	h := global.State.WithoutPrefix(dynH).Clone()
	for _, u := range ups {
		h.Axpy(-m.Alpha*clientsOf(u)/float64(global.Sampling.Clients), difference(u.Shared, old))
	}

	global.State.Put(dynH, h)
	global.Shared = global.Shared.Clone().Axpy(-1/m.Alpha, h)
	return nil
}
