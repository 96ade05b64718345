package optimization

import (
	"errors"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/graph"
)

// FedProx keeps the shared parameters near what the server sent: loss + mu/2 sum |w - w_t|^2.
//
// Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, eq. 2. The public federated prompt code
// (HongxiaLee/FedOTP and ljaiverson/pFedMoAP, trainers/promptfl.py) computes the penalty on tensors of state_dict,
// which PyTorch detaches, so that it is in the loss and has no gradient; here it has, unless detached says otherwise.
type FedProx struct {
	method.Method
	Mu       float64 `config:"mu" in:"0.." help:"strength of the proximal term"`
	Detached bool    `config:"detached" help:"reproduce a known defect: the term has no gradient"`
}

var fedProxDef = layer.Def{Name: "fedprox", Title: "FedProx",
	Paper:   "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020",
	Suits:   suitsFedProx,
	Default: FedProx{Mu: 0.5}}

// suitsFedProx refuses a FedNova inside, which would not know of the term.
func suitsFedProx(m method.Method) error {
	if _, has := layer.Of[FedNova](m); has {
		return errors.New("fednova counts the proximal term in a client's work only if fedprox is listed before it")
	}
	return nil
}

// Properties leaves the mean to the layers inside: only the clients' loss is another.
func (m FedProx) Properties() method.Properties {
	properties := method.Properties{Mean: method.InnerWeights}
	if m.Detached {
		properties.Reproduces = "options.detached: true"
	}
	return properties
}

// Loss adds mu/2 |w - w_t|² of each shared parameter to the loss inside (eq. 2), as one term; private parameters have
// none.
func (m FedProx) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.Method.Loss(scope, logits)
	if m.Mu == 0 {
		return loss
	}

	for _, name := range method.SharedNames(scope.Params()) {
		w := scope.TrainedValue(name)
		if m.Detached {
			w = w.Detach()
		}
		d := w.Sub(scope.Received().TrainedValue(name))
		loss = loss.Add(scope.Term("proximal", d.Square().Sum().MulScalar(m.Mu/2)))
	}

	return loss
}
