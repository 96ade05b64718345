package metrics

import (
	"errors"
	"maps"
	"slices"
)

// F1 is the name of the macro-F1 score, the mean over clients of each client's mean over classes.
const F1 = "f1"

// f1 is the mean over the classes that occur among the labels of 2 TP / (2 TP + FP + FN), as in the evaluator of the
// CoOp, FedOTP and FedPHA code; 0 without examples.
var f1 = &Statistic{Name: "f1", Title: "macro-F1", Size: 1,
	Compute: func(e Examples) []float64 {
		actual, predicted, hit := map[int64]int{}, map[int64]int{}, map[int64]int{}
		for i, y := range e.Labels {
			actual[y]++
			predicted[e.predicted[i]]++
			if e.predicted[i] == y {
				hit[y]++
			}
		}
		sum := 0.0
		for _, y := range slices.Sorted(maps.Keys(actual)) {
			sum += 2 * float64(hit[y]) / float64(predicted[y]+actual[y])
		}
		return []float64{sum / float64(max(1, len(actual)))}
	},
	Check: func(v []float64, test ReportedTest) error {
		if !(v[0] >= 0 && v[0] <= 1) || (v[0] == 0) != (test.Statistics[correct.Name][0] == 0) {
			return errors.New("macro-F1 must lie between 0 and 1, and be 0 only where no prediction is correct")
		}
		return nil
	}}

var f1Metric = Definition{Name: F1, Title: "macro-F1", Unit: Percent, Terminal: 3,
	Statistics: []*Statistic{f1}, Merge: meanClients,
	Value: over(func(c Client) float64 { return c.Statistics[f1.Name][0] }, Mean)}
