package metrics

import (
	"maps"
	"slices"
)

// Names of accuracies on other data, or of other clients.
const (
	Val     = "val"            // validation data
	New     = "new"            // clients that never trained, after some steps
	Honest  = "honest"         // clients that do not attack
	Success = "attack-success" // of a backdoor
)

var _ = define(Definition{Name: Val, Column: 160, Title: "accuracy on validation data", Unit: Percent, Evaluated: true,
	Merge: meanClients + " with validation data", Exists: headline + ": validation data", Privacy: sentAsIs,
	Read: func(r Round, _ string) (float64, bool) { return r.Validation.Value(Accuracy) }})

var _ = define(Definition{Name: New, Argument: StepsPlaceholder, Column: 170, Unit: Percent,
	Title: "accuracy of clients that never trained, by number of local steps:", Merge: meanClients,
	Exists: "test data of new clients, personal where the method has it", Privacy: sentAsIs,
	Read:      func(r Round, steps string) (float64, bool) { return r.NewClients[steps].Value(Accuracy) },
	Arguments: func(r Round) []string { return slices.Sorted(maps.Keys(r.NewClients)) }})

var _ = define(Definition{Name: Honest, Column: 180, Title: "accuracy of clients that do not attack", Unit: Percent,
	Evaluated: true, Merge: "mean over honest clients", Exists: headline + ": test data", Privacy: sentAsIs,
	Read: func(r Round, _ string) (float64, bool) {
		if !r.Attacked {
			return r.Evaluation.Value(Accuracy)
		}
		return given(r.Honest)
	},
	Arguments: func(r Round) []string { return make([]string, map[bool]int{true: 1}[r.Attacked]) }})

var _ = define(Definition{Name: Success, Column: 190, Unit: Percent, Evaluated: true, Lower: true,
	Title: "images with the trigger that are classified as the backdoor's target", Merge: "mean over honest clients",
	Exists: headline + ": the evaluation set of a backdoor", Privacy: sentAsIs,
	Read: func(r Round, _ string) (float64, bool) { return given(r.Success) }})
