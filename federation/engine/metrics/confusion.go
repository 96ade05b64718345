package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"promptfed/runtime/tensor"
)

// Matrix is a matrix by its entries that are not 0, sorted by class and by predicted class.
type Matrix struct {
	Counts   [][3]int64 `json:"counts"`    // class, class that it was taken for, examples
	PerClass []*float64 `json:"per_class"` // accuracy of each class; null where no client has a test example of it
}

// ConfusionCounts counts examples of class scores [N,C]: a tensor [K,3] of class, predicted class and number, sorted.
func ConfusionCounts(scores *tensor.Tensor, labels []int64) *tensor.Tensor {
	counts := map[[2]int64]int64{}
	for i, y := range labels {
		counts[[2]int64{y, Argmax(scores.Row(i).Data)}]++
	}
	var flat []int64
	for _, k := range sortedPairs(counts) {
		flat = append(flat, k[0], k[1], counts[k])
	}
	return tensor.OfInts(flat, len(counts), 3)
}

// Argmax is the place of the largest entry, of equal ones the first.
func Argmax(row []float32) int64 {
	best := 0
	for j, v := range row {
		if v > row[best] {
			best = j
		}
	}
	return int64(best)
}

func sortedPairs(m map[[2]int64]int64) [][2]int64 {
	return slices.SortedFunc(maps.Keys(m), func(a, b [2]int64) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
}

// MatrixOf adds the counts of clients.
func MatrixOf(parts []*tensor.Tensor, classes int) *Matrix {
	sum := map[[2]int64]int64{}
	of, right := make([]int64, classes), make([]int64, classes)
	for _, p := range parts {
		for k := range slices.Chunk(p.Ints, 3) {
			sum[[2]int64{k[0], k[1]}] += k[2]
			of[k[0]] += k[2]
			if k[0] == k[1] {
				right[k[0]] += k[2]
			}
		}
	}
	m := &Matrix{Counts: [][3]int64{}, PerClass: make([]*float64, classes)}
	for _, k := range sortedPairs(sum) {
		m.Counts = append(m.Counts, [3]int64{k[0], k[1], sum[k]})
	}
	for y, n := range of {
		if n > 0 {
			rate := float64(right[y]) / float64(n)
			m.PerClass[y] = &rate
		}
	}
	return m
}

// CheckConfusion refuses counts that do not match n examples of which so many are correct.
func CheckConfusion(t *tensor.Tensor, n, right int) error {
	if !t.IsInt() || len(t.Shape) != 2 || t.Shape[1] != 3 || t.Shape[0] > n {
		return fmt.Errorf("a confusion matrix has the invalid shape %v", t)
	}
	for k := range slices.Chunk(t.Ints, 3) {
		if k[0] < 0 || k[1] < 0 || k[2] < 1 || k[2] > int64(n) {
			return fmt.Errorf("a confusion matrix counts %d examples of class %d predicted as class %d", k[2], k[0],
				k[1])
		}
		n -= int(k[2])
		if k[0] == k[1] {
			right -= int(k[2])
		}
	}
	if n != 0 || right != 0 {
		return errors.New("the counts of a confusion matrix do not match the scores")
	}
	return nil
}
