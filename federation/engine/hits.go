package engine

import (
	"maps"
	"slices"

	"promptfed/runtime/tensor"
)

// hits compares the largest entry of each row of scores [N,C] with the labels; of equal entries the first counts.
// Macro-F1 is the mean over the classes that occur among the labels of 2 TP / (2 TP + FP + FN), as in the evaluator of the
// CoOp, FedOTP and FedPHA code.
func hits(scores *tensor.Tensor, labels []int64) Hits {
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
		best := 0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		of(y).is++
		of(int64(best)).said++
		if int64(best) == y {
			h.Right++
			of(y).hit++
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
	return h
}
