package engine

import (
	"maps"
	"promptfed/runtime/tensor"
	"slices"
)

// Hits are how well a client's examples were classified. Right is a count, not a rate, so that it adds up.
type Hits struct {
	Right int     `json:"right"`
	Own   int     `json:"own"` // right answers where only the classes compete that the client trains on
	F1    float64 `json:"f1"`  // macro-F1 over the classes of the examples

	Calibration Calibration `json:"calibration,omitempty"`

	counts *tensor.Tensor // [K,3], see confusion; nil where nobody asked
}

// hits compares the largest entry of each row of scores [N,C] with the labels; of equal entries the first counts.
// Macro-F1 is the mean over the classes that occur among the labels of 2 TP / (2 TP + FP + FN), as in the evaluator of
// the CoOp, FedOTP and FedPHA code. own are the classes that the client trains on.
func hits(scores *tensor.Tensor, labels []int64, own []int64) Hits {
	type count struct{ hit, said, is int }
	classes := map[int64]*count{}
	of := func(class int64) *count {
		if classes[class] == nil {
			classes[class] = &count{}
		}
		return classes[class]
	}
	h := Hits{}
	for i, y := range labels {
		row := scores.Row(i).Data
		best := argmax(row)
		of(y).is++
		of(best).said++
		if best == y {
			h.Right++
			of(y).hit++
		}
		if slices.Contains(own, y) && !slices.ContainsFunc(own, func(j int64) bool {
			return row[j] > row[y] ||
				row[j] == row[y] && j < y
		}) {
			h.Own++
		}
	}
	occur := 0
	for _, y := range slices.Sorted(maps.Keys(classes)) {
		if c := classes[y]; c.is > 0 {
			occur++
			h.F1 += 2 * float64(c.hit) / float64(c.said+c.is)
		}
	}
	h.F1 /= float64(max(1, occur))
	h.Calibration = calibration(scores, labels)
	return h
}
