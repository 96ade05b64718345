package record

import (
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
)

// Confusion is the content of ConfusionFile: how often each class was predicted as each class, over the test examples
// of all clients, in the round that is the run's result.
type Confusion struct {
	Round    int             `json:"round"`
	Classes  []string        `json:"classes"`
	Clients  int             `json:"clients"` // that sent their counts
	Global   *metrics.Matrix `json:"global,omitempty"`
	Personal *metrics.Matrix `json:"personal,omitempty"`
}

// ConfusionFile is the confusion matrix in a run folder.
const ConfusionFile = "confusion.json"

// ConfusionOf adds the confusion matrices of clients; nil where no client sent one.
func ConfusionOf(round, classes int, replies []message.Reply) *Confusion {
	out := &Confusion{Round: round}
	var global, personal []metrics.Statistics
	for _, r := range replies {
		if r.Scores.Global.HasConfusion() || r.Scores.Personal.HasConfusion() {
			out.Clients++
		}
		global, personal = append(global, r.Scores.Global), append(personal, r.Scores.Personal)
	}
	if out.Clients == 0 {
		return nil
	}
	out.Global, out.Personal = metrics.Confusion(global, classes), metrics.Confusion(personal, classes)
	return out
}
