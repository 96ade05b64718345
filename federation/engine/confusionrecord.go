package engine

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
