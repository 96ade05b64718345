package record

import (
	"slices"

	"promptfed/federation/engine/metrics"
)

// Attack is the effect of a simulated attack. Means are over honest clients, with the server's parameters and with each
// client's own, where the method has these evaluations.
type Attack struct {
	Clients  []int    `json:"clients"` // attackers that trained in the round; in a summary all of them
	Global   *float64 `json:"honest_global,omitempty"`
	Personal *float64 `json:"honest_personal,omitempty"`
	// where evaluation sets were tested: the share of images with the trigger that are taken for the target
	SuccessGlobal   *float64 `json:"success_global,omitempty"`
	SuccessPersonal *float64 `json:"success_personal,omitempty"`
}

// AttackedBy fills in the effect of attackers on a round, after its tests.
func (r *Record) AttackedBy(attackers []int) {
	if len(attackers) == 0 {
		return
	}
	out := &Attack{Clients: []int{}}
	for _, id := range attackers {
		if slices.Contains(r.Clients, id) {
			out.Clients = append(out.Clients, id)
		}
	}
	out.Global, out.Personal = honest(r.Evaluations, r.Answered, attackers)
	if x, ok := r.EvaluationSets[metrics.TriggeredSet]; ok {
		out.SuccessGlobal, out.SuccessPersonal = honest(x.Evaluations, x.Answered, attackers)
	}
	r.Attack = out
}

// honest returns the mean accuracies of a test over clients that do not attack.
func honest(e Evaluations, answered, attackers []int) (global, personal *float64) {
	of := func(e *metrics.Evaluation) *float64 {
		if e == nil {
			return nil
		}
		var accuracy []float64
		for i, v := range e.PerClient {
			client := i
			if answered != nil {
				client = answered[i]
			}
			if !slices.Contains(attackers, client) {
				accuracy = append(accuracy, v)
			}
		}
		if len(accuracy) == 0 {
			return nil
		}
		mean, _ := metrics.MeanStd(accuracy)
		return &mean
	}
	return of(e.Global), of(e.Personal)
}
