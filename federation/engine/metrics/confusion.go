package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// confusion is the confusion matrix of a client: rows of class, predicted class and number of examples, sorted, without
// zeros.
var confusion = &Statistic{Name: "confusion", Title: "confusion matrix", Columns: 3, RevealsLabels: true,
	Rows: func(classes int) int { return classes * classes },
	Compute: func(e Examples) []float64 {
		counts := map[[2]int64]int64{}
		for i, y := range e.Labels {
			counts[[2]int64{y, e.predicted[i]}]++
		}
		flat := []float64{}
		for _, k := range sortedPairs(counts) {
			flat = append(flat, float64(k[0]), float64(k[1]), float64(counts[k]))
		}
		return flat
	},
	Check: func(v []float64, test ReportedTest) error {
		examples, right := float64(test.Examples), test.Statistics[correct.Name][0]
		most := maxClass
		if test.Classes > 0 {
			most = test.Classes - 1
		}
		var before []float64
		for k := range slices.Chunk(v, 3) {
			if whole(most, k[:2]...) != nil || whole(test.Examples, k[2]) != nil || k[2] == 0 {
				return fmt.Errorf("it counts %v examples of class %v predicted as class %v", k[2], k[0], k[1])
			}
			if before != nil && slices.Compare(before, k[:2]) >= 0 {
				return errors.New("its rows are not in the order of classes, or one is there twice")
			}
			before, examples = k[:2], examples-k[2]
			if k[0] == k[1] {
				right -= k[2]
			}
		}
		if examples != 0 || right != 0 {
			return errors.New("its counts do not match the examples and the correct ones")
		}
		return nil
	}}

// maxClass bounds classes where the number of classes is unknown.
const maxClass = 1 << 31

// Matrix is a confusion matrix over clients, by its entries that are not 0, sorted by class and by predicted class.
type Matrix struct {
	Counts   [][3]int64 `json:"counts"`    // class, predicted class, examples
	PerClass []*float64 `json:"per_class"` // accuracy of each class; null where no client has a test example of it
}

func sortedPairs(m map[[2]int64]int64) [][2]int64 {
	return slices.SortedFunc(maps.Keys(m), func(a, b [2]int64) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
}

// HasConfusion reports whether a client sent its confusion matrix. Clients may withhold it, since it reveals their
// labels.
func (s Statistics) HasConfusion() bool { return s[confusion.Name] != nil }

// Confusion adds the confusion matrices of one evaluation of clients. Its result is nil where no client sent one.
func Confusion(clients []Statistics, classes int) *Matrix {
	var matrix *Matrix
	sum := map[[2]int64]int64{}
	examples, right := make([]int64, classes), make([]int64, classes)

	for _, s := range clients {
		if !s.HasConfusion() {
			continue
		}
		matrix = &Matrix{Counts: [][3]int64{}, PerClass: make([]*float64, classes)}
		for k := range slices.Chunk(s[confusion.Name], 3) {
			y, as, n := int64(k[0]), int64(k[1]), int64(k[2])
			sum[[2]int64{y, as}] += n
			examples[y] += n
			if y == as {
				right[y] += n
			}
		}
	}

	for _, k := range sortedPairs(sum) {
		matrix.Counts = append(matrix.Counts, [3]int64{k[0], k[1], sum[k]})
	}

	for y, n := range examples {
		if n > 0 {
			rate := float64(right[y]) / float64(n)
			matrix.PerClass[y] = &rate
		}
	}

	return matrix
}
