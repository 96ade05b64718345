package record

import (
	"math"

	"promptfed/federation/engine/message"
)

// Term is one term of the loss in a round: means over the clients that trained, of their means over steps.
type Term struct {
	Name  string   `json:"name"`
	Value *float64 `json:"value"` // as it enters the loss; null of what only corrects gradients
	TermNorm
	Params map[string]TermNorm `json:"params"` // on each parameter that the term reaches
}

// TermNorm is the Euclidean length of a term's own gradient.
type TermNorm struct {
	Norm float64 `json:"norm"`
	// Relative is Norm divided by the norm of the gradient of all cross entropies together; null where they have none.
	Relative *float64 `json:"relative"`
}

// MeanTerms averages the clients' measurements; nil where no client measured.
func MeanTerms(replies []message.Reply) []Term {
	var measured []*message.LossTerms
	for _, r := range replies {
		if r.Stats.Terms != nil {
			measured = append(measured, r.Stats.Terms)
		}
	}

	mean := message.LossTerms{}
	for _, t := range measured {
		mean.Add(*t, 1/float64(len(measured)))
	}

	fit := mean.CrossEntropy
	var out []Term
	for _, t := range mean.Terms {
		one := Term{Name: t.Name, Value: &t.Value, TermNorm: against(t.All, fit.All), Params: map[string]TermNorm{}}
		if t.Name == message.Correction {
			one.Value = nil
		}
		for param, norm := range t.On {
			one.Params[param] = against(norm, fit.On[param])
		}
		out = append(out, one)
	}

	return out
}

// against divides a norm by that of cross entropy.
func against(norm, fit float64) TermNorm {
	out := TermNorm{Norm: norm}
	if r := norm / fit; fit > 0 && !math.IsInf(r, 0) {
		out.Relative = &r
	}
	return out
}
