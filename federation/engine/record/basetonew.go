package record

import (
	"promptfed/federation/engine/metrics"
)

// Evaluation sets of base-to-new generalisation (docs/evaluation.md), as CoCoOp calls them.
const (
	BaseSet = "base" // the test images of all classes that the federation trains on
	NewSet  = "new"  // those of the other classes
)

// BaseToNew is base-to-new generalisation: the one place where local, base and new are defined.
//
//   - local: a client's own test data, which is of its own classes, scored among the names of all classes that the
//     federation trains on; mean over clients. (FedPGP's released test. FedTPG lets only the client's own classes
//     compete, which is easier: that is own_classes of the evaluation.)
//   - base: every client on the test images of all classes that the federation trains on, among the names of these.
//   - new: every client on the test images of the classes that nobody trains on, among the names of those, without
//     training.
//   - hm: the harmonic mean of base and new, 2/(1/base + 1/new), of their means over clients; hm3: of all three,
//     3/(1/local + 1/base + 1/new), which FedTPG prints as HM. Where one is 0 they are 0.
type BaseToNew struct {
	// with the server's shared parameters; absent where the method does not have it
	Global   *Generalisation `json:"global,omitempty"`
	Personal *Generalisation `json:"personal,omitempty"`
}

// Generalisation is local, base and new of one evaluation; see BaseToNew.
type Generalisation struct {
	Local float64 `json:"local"`
	Base  float64 `json:"base"`
	New   float64 `json:"new"`
	HM    float64 `json:"hm"`
	HM3   float64 `json:"hm3"`
}

// Generalise puts the round's evaluations together; nil where it has no sets base and new.
func (r *Record) Generalise() *BaseToNew {
	base, some := r.EvaluationSets[BaseSet]
	other, both := r.EvaluationSets[NewSet]
	if !some || !both {
		return nil
	}
	of := func(local, base, new *Evaluation) *Generalisation {
		if local == nil || base == nil || new == nil {
			return nil
		}
		l, b, n := local.Accuracy, base.Accuracy, new.Accuracy
		return &Generalisation{l, b, n, metrics.Harmonic(b, n), metrics.Harmonic(l, b, n)}
	}
	return &BaseToNew{of(r.Evaluations.Global, base.Evaluations.Global, other.Evaluations.Global),
		of(r.Evaluations.Personal, base.Evaluations.Personal, other.Evaluations.Personal)}
}
