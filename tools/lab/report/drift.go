package report

import (
	"cmp"
	"slices"

	"promptfed/tools/lab/page"
	"promptfed/tools/lab/results"
)

// driftPanel shows how far the updates of clients go apart, where the run measured them.
var driftPanel = panel{part: page.Panel{Name: "drift", Title: "Drift of clients"},
	data: func(r *results.Run) (any, error) { return drifts(r.Rounds), nil }}

// mostDrifts is the largest number of updates on the page; of more, rounds are left out.
const mostDrifts = 20_000

// clientDrift is the drift of a client in the rounds in which it trained.
type clientDrift struct {
	Client int             `json:"client"`
	Rounds []int           `json:"rounds"` // counted from 1
	Norm   results.Numbers `json:"norm"`
	Cosine results.Numbers `json:"cosine"` // NaN if an update has no direction
}

// drifts returns the drift of each client; nil if none was measured.
func drifts(rounds []results.Round) (out []*clientDrift) {
	total := 0
	for _, r := range rounds {
		total += len(r.Drift)
	}

	stride := 1 + total/mostDrifts
	for i := 0; i < len(rounds); i += stride {
		for _, drift := range rounds[i].Drift {
			at, known := slices.BinarySearchFunc(out, drift.Client,
				func(c *clientDrift, client int) int { return cmp.Compare(c.Client, client) })
			if !known {
				out = slices.Insert(out, at, &clientDrift{Client: drift.Client})
			}
			c := out[at]
			c.Rounds, c.Norm = append(c.Rounds, i+1), append(c.Norm, drift.Norm)
			c.Cosine = append(c.Cosine, results.OrNaN(drift.Cosine))
		}
	}

	return out
}
