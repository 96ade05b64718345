package metrics

import (
	"maps"
	"slices"
)

const (
	Set     = "set"      // accuracy on one evaluation set, whose name is the argument
	SetMean = "set-mean" // mean over the sets that are not of the experiment's own data set
)

// Evaluation sets that are made of the experiment's own data set. Those of base-to-new generalisation have CoCoOp's
// names (docs/evaluation.md). Those of a simulated backdoor are all test images of other classes than its target,
// labelled as the target: accuracy is the share that is predicted as the target, with the trigger the attack's success
// rate, without it the baseline.
const (
	BaseSet        = "base" // the test images of all classes that the federation trains on
	NewSet         = "new"  // those of the other classes
	TriggeredSet   = "backdoor"
	UntriggeredSet = "backdoor-without-trigger"
)

// Reserved reports whether a name is that of an evaluation set that is made of the experiment's own data set.
func Reserved(name string) bool {
	return slices.Contains([]string{BaseSet, NewSet, TriggeredSet, UntriggeredSet}, name)
}

var setMetric = Definition{Name: Set, Argument: NamePlaceholder, Title: "accuracy on the evaluation set",
	Unit: Percent, Evaluated: true, Merge: meanClients, Exists: headline + ": evaluation sets", Privacy: sentAsIs,
	Read: func(r Round, name string) (float64, bool) {
		e, _ := lookUp(r.Sets, name)
		return e.Value(Accuracy)
	},
	Arguments: func(r Round) []string { return slices.Sorted(maps.Keys(r.Sets)) }}

var setMeanMetric = Definition{Name: SetMean, Title: "mean over other data sets and left-out domains",
	Unit: Percent, Evaluated: true, Merge: overSets + " that are not of the experiment's own data set",
	Exists: headline + ": evaluation sets", Privacy: derived,
	Read: func(r Round, _ string) (float64, bool) {
		var all []float64
		for _, name := range slices.Sorted(maps.Keys(r.Sets)) {
			if Reserved(name) {
				continue
			}
			v, ok := r.Sets[name].Value(Accuracy)
			if !ok {
				return 0, false
			}
			all = append(all, v)
		}
		return Mean(all), len(all) > 0
	}}

const (
	HM  = "hm"  // base and new
	HM3 = "hm3" // local, base and new
)

// Generalisation is base-to-new generalisation in one evaluation: the one place where local, base and new are defined.
//
//   - local: a client's own test data, which is of its own classes, scored among the names of all classes that the
//     federation trains on; mean over clients. (FedPGP's released test. FedTPG lets only the client's own classes
//     compete, which is easier: that is own_classes of the evaluation.)
//   - base: every client on the test images of all classes that the federation trains on, among the names of these.
//   - new: every client on the test images of the classes that nobody trains on, among the names of those, without
//     training.
//   - hm: the harmonic mean of base and new, 2/(1/base + 1/new), of their means over clients; hm3: of all three,
//     3/(1/local + 1/base + 1/new), which FedTPG prints as HM. Where one is 0 they are 0.
type Generalisation struct {
	Local float64 `json:"local"`
	Base  float64 `json:"base"`
	New   float64 `json:"new"`
	HM    float64 `json:"hm"`
	HM3   float64 `json:"hm3"`
}

// Generalise puts the evaluations of local, base and new test data together; nil where one is missing.
func Generalise(local, base, other *Evaluation) *Generalisation {
	if local == nil || base == nil || other == nil {
		return nil
	}
	l, b, n := local.Accuracy(), base.Accuracy(), other.Accuracy()
	return &Generalisation{l, b, n, harmonic(b, n), harmonic(l, b, n)}
}

var (
	hmMetric  = generalisation(HM, "harmonic mean of base and new", "", func(g Generalisation) float64 { return g.HM })
	hm3Metric = generalisation(HM3, "harmonic mean of local, base and new", "test data, ",
		func(g Generalisation) float64 { return g.HM3 })
)

// generalisation defines a harmonic mean; also says what it needs beside the evaluation sets.
func generalisation(name, title, also string, value func(g Generalisation) float64) Definition {
	return Definition{Name: name, Title: title, Unit: Percent, Evaluated: true, Merge: computed,
		Exists: headline + ": " + also + "evaluation sets base and new", Privacy: derived,
		Read: func(r Round, _ string) (float64, bool) {
			if r.BaseToNew == nil {
				return 0, false
			}
			return value(*r.BaseToNew), true
		}}
}

// harmonic is the harmonic mean of numbers that are not negative; 0 where one of them is.
func harmonic(values ...float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += 1 / v
	}
	return float64(len(values)) / sum
}
