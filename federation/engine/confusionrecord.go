package engine

import (
	"promptfed/runtime/tensor"
	"slices"
)

// Confusion is what ConfusionFile holds: how often which class was taken for which, over the test examples of all
// clients, in the round that is the run's result.
type Confusion struct {
	Round    int              `json:"round"`
	Classes  []string         `json:"classes"`
	Clients  int              `json:"clients"` // that told their counts
	Global   *ConfusionMatrix `json:"global,omitempty"`
	Personal *ConfusionMatrix `json:"personal,omitempty"`
}

// ConfusionFile is the confusion matrix in a run folder.
const ConfusionFile = "confusion.json"

// confusion puts the counts of clients together; nil where nobody told any.
func confusionOf(round, classes int, replies []Reply) *Confusion {
	out := &Confusion{Round: round}
	parts := map[string][]*tensor.Tensor{}
	// classes that this experiment does not have: the client is not to be believed
	foreign := func(t *tensor.Tensor) bool {
		return slices.ContainsFunc(slices.Collect(slices.Chunk(t.Ints, 3)), func(k []int64) bool {
			return max(k[0], k[1]) >= int64(classes)
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
		out.Global = matrix(list, classes)
	}
	if list := parts[personalCounts]; list != nil {
		out.Personal = matrix(list, classes)
	}
	return out
}
