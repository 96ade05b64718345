package metrics

import (
	"maps"
	"slices"

	"promptfed/runtime/tensor"
)

// Classification is how well a client's examples were classified. Correct is a count, not a rate, so that it adds up.
type Classification struct {
	Correct    int     `json:"right"`
	CorrectOwn int     `json:"own"` // right answers where only the classes compete that the client trains on
	F1         float64 `json:"f1"`  // macro-F1 over the classes of the examples

	Calibration Calibration `json:"calibration,omitempty"`

	Confusion *tensor.Tensor // [K,3], see confusion; nil where nobody asked
}

// Classify compares the largest entry of each row of scores [N,C] with the labels; of equal entries the first counts.
// Macro-F1 is the mean over the classes that occur among the labels of 2 TP / (2 TP + FP + FN), as in the evaluator of
// the CoOp, FedOTP and FedPHA code. own are the classes that the client trains on.
func Classify(scores *tensor.Tensor, labels []int64, own []int64) Classification {
	type count struct{ correct, predicted, actual int }
	classes := map[int64]*count{}
	of := func(class int64) *count {
		if classes[class] == nil {
			classes[class] = &count{}
		}
		return classes[class]
	}
	h := Classification{}
	for i, y := range labels {
		row := scores.Row(i).Data
		best := Argmax(row)
		of(y).actual++
		of(best).predicted++
		if best == y {
			h.Correct++
			of(y).correct++
		}
		if slices.Contains(own, y) && !slices.ContainsFunc(own, func(j int64) bool {
			return row[j] > row[y] || row[j] == row[y] && j < y
		}) {
			h.CorrectOwn++
		}
	}
	occur := 0
	for _, y := range slices.Sorted(maps.Keys(classes)) {
		if c := classes[y]; c.actual > 0 {
			occur++
			h.F1 += 2 * float64(c.correct) / float64(c.predicted+c.actual)
		}
	}
	h.F1 /= float64(max(1, occur))
	h.Calibration = calibration(scores, labels)
	return h
}
