package personal

import (
	"math"
	"slices"
	"strconv"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/linalg"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// FedAMP has no common model. The server keeps the last parameters w_i of every client, and sends each client a mixture
// u_i of its own parameters and those of similar clients. A client continues from its own w_i with the loss and mu/2 |w
// - u_i|²,
//
//	u_i = Σ_j x_ij w_j, x_ij = exp(-|w_i - w_j|²/sigma)/n for j ≠ i, x_ii = 1 - Σ_(j≠i) x_ij.
//
// Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021, algorithm 1. Where there is a
// choice:
//   - sigma: 0 takes the median squared distance of two clients of the round, since prompts lie close to each other;
//   - the paper's step alpha is sigma over n, the number of clients, with which x_ii is above 0;
//   - mu is the paper's lambda over alpha;
//   - public code (PFLlib) takes the norm in place of its square.
//
// The server also sends the base method's mean, from which newcomers start and which the global evaluation tests: a
// client receives twice as much as it uploads. A client far from all others does not influence them. Kinds of robust
// that make all uploads equal remove the differences between clients.
//
// Names: amp/u/NAME, to single clients; amp/K/NAME, what client K uploaded last, on the server; amp/w/NAME, what a
// client keeps.
type FedAMP struct {
	method.Method
	Mu    float64 `config:"mu" in:"0.." help:"strength of the pull towards the server's mixture"`
	Sigma float64 `config:"sigma" in:"0.." help:"squared distance within which clients count as similar; 0: the median"`
}

var fedAMPDef = layer.Def{Name: "fedamp", Title: "FedAMP",
	Paper:   "Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021",
	Suits:   layer.RequireShared,
	Default: FedAMP{Mu: 1}}

// Properties declares that the server needs every client's own parameters. The wrapper takes the server's step and the
// start of a round, which other layers then cannot have.
func (FedAMP) Properties() method.Properties {
	return method.Properties{Needs: "every client's own parameters",
		Roles: map[method.Role]string{method.ServerStep: "", method.RoundStart: ""}}
}

// View is personal: a client is tested with its own w_i.
func (FedAMP) View() method.View { return method.PersonalView }

// Names of mixtures and of what a client goes on from; the server has the latter under amp and a client's number.
const (
	ampU = "amp/u"
	ampW = "amp/w"
	amp  = "amp"
)

// Loss adds mu/2 |w - u_i|² over all shared parameters to the loss inside; u_i is a constant that the server sent.
func (m FedAMP) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	for _, name := range method.SharedNames(scope.Params()) {
		w := scope.TrainedValue(name)
		shape, _ := w.Shape().Ints()
		far := w.Sub(scope.Broadcast(ampU+"/"+name, shape...))
		loss = loss.Add(scope.Term("attentive proximal", far.Square().Sum().MulScalar(m.Mu/2)))
	}

	return loss
}

// Begin goes on from the client's own parameters; one that nothing was mixed for yet is pulled to the mean.
func (m FedAMP) Begin(local *method.Local) error {
	for name := range local.Shared {
		if t := local.State[ampW+"/"+name]; t != nil {
			local.Shared[name] = t.Clone()
		}
		if at := ampU + "/" + name; local.Broadcast[at] == nil {
			local.Broadcast[at] = local.Received[name]
		}
	}

	return m.Method.Begin(local)
}

// Finish keeps w_i, from which the client's next turn goes on.
func (m FedAMP) Finish(local *method.Local, up *method.Upload) error {
	local.State.Put(ampW, local.Shared.Clone())
	return m.Method.Finish(local, up)
}

// Merge renews w_i of the clients that uploaded, and mixes u_i anew for every client that has uploaded in any round.
// The layers inside make the common mean.
func (m FedAMP) Merge(global *method.Global, ups []method.Upload) error {
	for _, u := range ups {
		global.State.Put(ampOf(u.Client), u.Shared)
	}

	var clients []int
	var last []tensor.Map
	for k := range global.Clients {
		if w := global.State.WithoutPrefix(ampOf(k)); len(w) > 0 {
			clients, last = append(clients, k), append(last, w)
		}
	}

	weights := m.weights(last)
	for i, k := range clients {
		u := last[i].Clone().Scale(weights[i][i])
		for j := range last {
			if j != i {
				u.Axpy(weights[i][j], last[j])
			}
		}
		global.ExtrasFor(k).Put(ampU, u)
	}

	return m.Method.Merge(global, ups)
}

func ampOf(client int) string { return amp + "/" + strconv.Itoa(client) }

// weights returns x, whose rows sum up to 1.
func (m FedAMP) weights(last []tensor.Map) [][]float64 {
	x, all := linalg.SquaredDistances(last), []float64{}
	for i := range x {
		all = append(all, x[i][:i]...)
	}

	sigma := m.Sigma
	if slices.Sort(all); sigma == 0 && len(last) > 1 {
		sigma = max(linalg.Median(all), math.SmallestNonzeroFloat32)
	}

	for i := range x {
		others := 0.0
		for j := range x {
			if j != i {
				x[i][j] = 1 / float64(len(last)) * math.Exp(-x[i][j]/sigma)
				others += x[i][j]
			}
		}
		x[i][i] = 1 - others
	}

	return x
}
