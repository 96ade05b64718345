package personal

import (
	"fmt"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/tensor"
)

// FedRep splits a base method's shared parameters as FedPer does and trains the two parts one after the other: in the
// first head_epochs passes over the data the private ones alone, in the others of train.epochs the shared ones alone.
//
// Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML 2021, algorithm 1. The
// paper counts clients alike in the mean, the base method here by examples as a rule; public code (PFLlib) has one pass
// for each part.
type FedRep struct {
	FedPer `config:",squash"`

	Head int `config:"head_epochs" in:"1..steps" help:"first passes, which train the private parameters only"`
}

var fedRepDef = layer.Def{Name: "fedrep", Title: "FedRep",
	Paper:   "Collins et al., Exploiting Shared Representations for Personalized Federated Learning, ICML 2021",
	Default: FedRep{FedPer: allAveraged, Head: 1}}

// AdjustGradients freezes the part that a pass does not train. It gets no gradient, no weight decay and no momentum, so
// that each part has, in effect, an optimizer of its own.
func (m FedRep) AdjustGradients(local *method.Local, g tensor.Map) error {
	if !m.none() {
		frozen := local.Private
		if local.Epoch < m.Head {
			frozen = local.Shared
		}
		local.Frozen = append(local.Frozen, frozen.Names()...)
	}

	return m.Method.AdjustGradients(local, g)
}

// Finish returns an error for a turn whose passes all trained private parameters, if the server gets the upload: that
// would be what was sent.
func (m FedRep) Finish(local *method.Local, up *method.Upload) error {
	if !m.none() && !local.Alone && local.Epoch < m.Head {
		return fmt.Errorf("fedrep: all %d passes over the data trained private parameters only; set train.epochs "+
			"above head_epochs, which is %d, and no bound of train.each.steps below it", local.Epoch+1, m.Head)
	}
	return m.Method.Finish(local, up)
}
