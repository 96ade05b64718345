package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"promptfed/runtime/atomicfile"
	"promptfed/runtime/tensor"
)

// ConfusionFile is the confusion matrix in a run folder.
const ConfusionFile = "confusion.json"

// Confusion is what ConfusionFile holds: how often which class was taken for which, over the test examples of all
// clients, in the round that is the run's result.
type Confusion struct {
	Round    int              `json:"round"`
	Classes  []string         `json:"classes"`
	Clients  int              `json:"clients"` // that told their counts
	Global   *ConfusionMatrix `json:"global,omitempty"`
	Personal *ConfusionMatrix `json:"personal,omitempty"`
}

// ConfusionMatrix is a matrix by its entries that are not 0, sorted by class and by what it was taken for.
type ConfusionMatrix struct {
	Counts   [][3]int64 `json:"counts"`    // class, class that it was taken for, examples
	PerClass []*float64 `json:"per_class"` // accuracy of each class; null where no client has a test example of it
}

// confusion counts examples of class scores [N,C]: a tensor [K,3] of class, class that it was taken for and number,
// sorted.
func confusion(scores *tensor.Tensor, labels []int64) *tensor.Tensor {
	counts := map[[2]int64]int64{}
	for i, y := range labels {
		counts[[2]int64{y, argmax(scores.Row(i).Data)}]++
	}
	var flat []int64
	for _, k := range sortedPairs(counts) {
		flat = append(flat, k[0], k[1], counts[k])
	}
	return tensor.OfInts(flat, len(counts), 3)
}

// argmax is the place of the largest entry, of equal ones the first.
func argmax(row []float32) int64 {
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
		return cmp.Or(cmp.Compare(a[0], b[0]),
			cmp.Compare(a[1], b[1]))
	})
}

// matrix adds the counts of clients.
func matrix(parts []*tensor.Tensor, classes int) *ConfusionMatrix {
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
	m := &ConfusionMatrix{Counts: [][3]int64{}, PerClass: make([]*float64, classes)}
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

// checkConfusion finds what is no count of n examples of which so many are right.
func checkConfusion(t *tensor.Tensor, n, right int) error {
	if !t.IsInt() || len(t.Shape) != 2 || t.Shape[1] != 3 || t.Shape[0] > n {
		return fmt.Errorf("a confusion matrix has the shape %v", t)
	}
	for k := range slices.Chunk(t.Ints, 3) {
		if k[0] < 0 || k[1] < 0 || k[2] < 1 || k[2] > int64(n) {
			return fmt.Errorf("a confusion matrix has %d examples of class %d taken for class %d", k[2], k[0], k[1])
		}
		n -= int(k[2])
		if k[0] == k[1] {
			right -= int(k[2])
		}
	}
	if n != 0 || right != 0 {
		return errors.New("a confusion matrix counts other examples than the scores")
	}
	return nil
}

// What the tensors of a reply are called that count which class was taken for which.
const (
	globalCounts   = "confusion/global"
	personalCounts = "confusion/personal"
)

// counts are what a reply tells of which class was taken for which.
func (s Scores) counts() tensor.Map {
	m := tensor.Map{}
	for name, h := range map[string]*Hits{globalCounts: s.Global, personalCounts: s.Personal} {
		if h != nil && h.counts != nil {
			m[name] = h.counts
		}
	}
	return m
}

// checkTest finds what no reply to an order that tests can be.
func (o Order) checkTest(r Reply) error {
	if len(r.Upload.Shared) > 0 || !o.Counts && len(r.Upload.Extra) > 0 {
		return fmt.Errorf("the reply to a test has tensors %v", uploadTensors(r.Upload).Names())
	}
	if o.Kind == Validate && r.Scores.Examples == 0 && r.Scores.Global == nil && r.Scores.Personal == nil {
		return nil // it has no validation data
	}
	if err := r.Scores.check(); err != nil {
		return err
	}
	for _, name := range r.Upload.Extra.Names() {
		h := map[string]*Hits{globalCounts: r.Scores.Global, personalCounts: r.Scores.Personal}[name]
		if h == nil {
			return fmt.Errorf("the reply to a test has a tensor %.100q", name)
		}
		if err := checkConfusion(r.Upload.Extra[name], r.Scores.Examples, h.Right); err != nil {
			return err
		}
	}
	return nil
}

// confusion puts the counts of clients together; nil where nobody told any.
func (s *Server) confusion(round int, replies []Reply) *Confusion {
	out := &Confusion{Round: round}
	parts := map[string][]*tensor.Tensor{}
	// classes that this experiment does not have: the client is not to be believed
	foreign := func(t *tensor.Tensor) bool {
		return slices.ContainsFunc(slices.Collect(slices.Chunk(t.Ints, 3)), func(k []int64) bool {
			return max(k[0], k[1]) >= int64(s.Global.Classes)
		})
	}
	for _, r := range replies {
		some := false
		for _, name := range []string{globalCounts, personalCounts} {
			if t := r.Upload.Extra[name]; t != nil && !foreign(t) {
				parts[name], some = append(parts[name], t), true
			}
		}
		if some {
			out.Clients++
		}
	}
	if out.Clients == 0 {
		return nil
	}
	if list := parts[globalCounts]; list != nil {
		out.Global = matrix(list, s.Global.Classes)
	}
	if list := parts[personalCounts]; list != nil {
		out.Personal = matrix(list, s.Global.Classes)
	}
	return out
}

// keepConfusion writes the confusion matrix of a round that may be the result, before the round counts.
func (e *Experiment) keepConfusion(set Settings, s *Server, round int) error {
	if s.Confusion == nil || s.Confusion.Round != round {
		return nil
	}
	s.Confusion.Classes = e.Classes
	if set.Dir == "" {
		return nil
	}
	b, err := json.Marshal(s.Confusion)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(set.Dir, ConfusionFile), func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}
