package results

import (
	"fmt"
	"math"
	"slices"

	"promptfed/federation/engine/record"
	"promptfed/federation/method"
)

// VanishingThreshold is the relative gradient norm, compared with cross entropy, below which a term has almost no
// effect.
const VanishingThreshold = 1e-3

// Term is one term of the loss in the rounds of a run, for one parameter or for all parameters.
type Term struct {
	Name     string  `json:"name"`
	Param    string  `json:"-"`      // "" for all parameters together
	Rounds   []int   `json:"rounds"` // rounds with the term, counted from 0
	Value    Numbers `json:"value"`
	Norm     Numbers `json:"norm"`     // of the gradient
	Relative Numbers `json:"relative"` // Norm divided by cross entropy's norm
}

// Terms returns the measured terms in the order of the loss: each for all parameters, then for every parameter that it
// depends on. Unknown values are NaN.
func Terms(rounds []Round) []*Term {
	var names []string
	byName := map[string]map[string]*Term{}
	for _, round := range rounds {
		for _, term := range round.Terms {
			if byName[term.Name] == nil {
				names, byName[term.Name] = append(names, term.Name), map[string]*Term{}
			}

			add := func(param string, n record.TermNorm) {
				o := byName[term.Name][param]
				if o == nil {
					o = &Term{Name: term.Name, Param: param}
					byName[term.Name][param] = o
				}
				o.Rounds, o.Norm = append(o.Rounds, round.Round), append(o.Norm, n.Norm)
				o.Value, o.Relative = append(o.Value, OrNaN(term.Value)), append(o.Relative, OrNaN(n.Relative))
			}

			add("", term.TermNorm)
			for param, n := range term.Params {
				add(param, n)
			}
		}
	}

	var out []*Term
	for _, name := range names {
		for _, param := range SortedKeys(byName[name]) { // "", all together, comes first
			out = append(out, byName[name][param])
		}
	}

	return out
}

// OrNaN returns a number that may be unknown; NaN for nil.
func OrNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// VanishingTerms names the terms whose relative gradient norm is below VanishingThreshold in every round, for every
// parameter. It omits terms with a parameter that cross entropy does not reach.
func VanishingTerms(rounds []Round) []string {
	acts, names := map[string]bool{}, []string(nil)
	for _, t := range Terms(rounds) {
		if method.IsCrossEntropy(t.Name) {
			continue
		}
		names = AppendMissing(names, t.Name)
		for i, r := range t.Relative {
			acts[t.Name] = acts[t.Name] || r >= VanishingThreshold || math.IsNaN(r) && t.Norm[i] > 0
		}
	}

	return slices.DeleteFunc(names, func(n string) bool { return acts[n] })
}

// VanishingNote returns a note that a term of a run is one of VanishingTerms. A term before the end of its warm-up has
// no gradient at all.
func VanishingNote(run, term string, rounds []Round) string {
	if slices.ContainsFunc(Terms(rounds), func(t *Term) bool { return t.Name == term && slices.Max(t.Norm) > 0 }) {
		return fmt.Sprintf("%s: the gradient of the term %q is below %g of cross entropy's in every round", run, term,
			VanishingThreshold)
	}
	return fmt.Sprintf("%s: the term %q has no gradient in any of the %d rounds; one that waits for a warm-up needs "+
		"more rounds", run, term, len(rounds))
}
