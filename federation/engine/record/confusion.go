package record

import (
	"slices"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/runtime/tensor"
)

// Confusion is what ConfusionFile holds: how often each class was predicted as each class, over the test examples of
// all clients, in the round that is the run's result.
type Confusion struct {
	Round    int             `json:"round"`
	Classes  []string        `json:"classes"`
	Clients  int             `json:"clients"` // that sent their counts
	Global   *metrics.Matrix `json:"global,omitempty"`
	Personal *metrics.Matrix `json:"personal,omitempty"`
}

// ConfusionFile is the confusion matrix in a run folder.
const ConfusionFile = "confusion.json"

// confusion puts the counts of clients together; nil where no client sent any.
func ConfusionOf(round, classes int, replies []message.Reply) *Confusion {
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
		for _, name := range []string{message.GlobalCounts, message.PersonalCounts} {
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
	if list := parts[message.GlobalCounts]; list != nil {
		out.Global = metrics.MatrixOf(list, classes)
	}
	if list := parts[message.PersonalCounts]; list != nil {
		out.Personal = metrics.MatrixOf(list, classes)
	}
	return out
}
