package record

import (
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// BaseToNew is base-to-new generalisation (metrics.Generalisation).
type BaseToNew struct {
	// with the server's shared parameters; absent where the method does not have it
	Global   *metrics.Generalisation `json:"global,omitempty"`
	Personal *metrics.Generalisation `json:"personal,omitempty"`
}

// Of returns one of the two; nil of nil.
func (b *BaseToNew) Of(v method.View) *metrics.Generalisation {
	switch {
	case b == nil:
		return nil
	case v == method.PersonalView:
		return b.Personal
	}
	return b.Global
}

// Generalise computes base-to-new generalisation from the round's evaluations; nil where it lacks the sets base and
// new.
func (r *Record) Generalise() *BaseToNew {
	base, some := r.EvaluationSets[metrics.BaseSet]
	other, both := r.EvaluationSets[metrics.NewSet]
	if !some || !both {
		return nil
	}
	own, b, n := r.Evaluations, base.Evaluations, other.Evaluations
	return &BaseToNew{metrics.Generalise(own.Global, b.Global, n.Global),
		metrics.Generalise(own.Personal, b.Personal, n.Personal)}
}
