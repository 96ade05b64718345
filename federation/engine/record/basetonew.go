package record

import (
	"promptfed/federation/engine/metrics"
)

// BaseToNew is base-to-new generalisation (metrics.Generalisation).
type BaseToNew = ByView[metrics.Generalisation]

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
