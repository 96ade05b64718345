package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
)

// ParseLine reads a line of rounds.jsonl, which must be that of a round. Every reader of the file uses it, so that all
// take the same rounds.
func ParseLine(line []byte, round int) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("is not a round: %w", err)
	}

	if r.Round != round {
		return r, fmt.Errorf("is round %d, where %d is expected", r.Round, round)
	}

	if err := r.Check(); err != nil {
		return r, err
	}

	if !r.Tested {
		r.Evaluation = nil
	}

	if r.Evaluation != nil && r.Evaluations == (Evaluations{}) {
		return r, fmt.Errorf("has an accuracy without its evaluations (global, personal)")
	}

	return r, nil
}

// OwnEvaluations lists the evaluations on the clients' own test data that the round has, the headline too.
func (r *Record) OwnEvaluations() []*metrics.Evaluation {
	return evaluationsOf(r.Evaluation, r.Evaluations)
}

// evaluationsOf lists the evaluations that a test has.
func evaluationsOf(headline *metrics.Evaluation, both Evaluations) []*metrics.Evaluation {
	return slices.DeleteFunc([]*metrics.Evaluation{headline, both.Global, both.Personal},
		func(e *metrics.Evaluation) bool { return e == nil })
}

// Check refuses impossible numbers, which would make means and drawings meaningless.
func (r *Record) Check() error {
	own := r.OwnEvaluations()
	all := slices.Clone(own)
	for _, tests := range []map[string]SetResult{r.EvaluationSets, r.NewClients} {
		for _, x := range tests {
			all = append(all, evaluationsOf(x.Evaluation, x.Evaluations)...)
		}
	}

	if r.Validation != nil {
		all = append(all, evaluationsOf(nil, r.Validation.Evaluations)...)
	}

	for _, e := range all {
		if err := e.Check(); err != nil {
			return err
		}
	}

	for _, v := range r.shares() {
		if v < 0 || v > 1+1e-9 {
			return fmt.Errorf("has the share %v, which is not between 0 and 1", v)
		}
	}

	for name, v := range r.Notes {
		if math.Abs(v) > 1e30 {
			return fmt.Errorf("has the impossible note %.50q", name)
		}
	}

	clients := len(r.TestSizes)
	for _, e := range own {
		n := len(e.PerClient)
		if n > 0 && clients > 0 && n != clients {
			return fmt.Errorf("has lists of clients of different lengths")
		}
		clients = max(clients, n)
	}

	if err := checkTerms(r.Terms); err != nil {
		return err
	}

	for _, d := range r.Drift {
		if d.Client < 0 || !(d.Norm >= 0 && d.Norm < 1e30) || d.Cosine != nil && !(math.Abs(*d.Cosine) <= 1) {
			return fmt.Errorf("has an impossible update of client %d", d.Client)
		}
	}

	if r.Loss != nil && math.Abs(*r.Loss) > 1e30 || math.Abs(r.LR) > 1e30 ||
		!(r.Seconds >= 0 && r.Seconds < 1e12) || r.BytesUp < 0 || r.BytesDown < 0 || r.ParametersUp < 0 ||
		r.ParametersDown < 0 || r.Simulated != nil && !(r.Simulated.Seconds >= 0 && r.Simulated.Seconds < 1e30) {
		return fmt.Errorf("has an impossible loss, rate, time, or number of bytes or parameters")
	}

	return nil
}

// shares returns the round's numbers outside its evaluations that must lie between 0 and 1.
func (r *Record) shares() []float64 {
	var out []float64
	for _, view := range []method.View{method.GlobalView, method.PersonalView} {
		if g := r.BaseToNew.Of(view); g != nil {
			out = append(out, g.Local, g.Base, g.New, g.HM, g.HM3)
		}
	}

	if a := r.Attack; a != nil {
		for _, v := range []*float64{a.Global, a.Personal, a.SuccessGlobal, a.SuccessPersonal} {
			if v != nil {
				out = append(out, *v)
			}
		}
	}

	return out
}

// checkTerms refuses impossible terms.
func checkTerms(terms []Term) error {
	const most = 64
	for _, term := range terms {
		norms := append(slices.Collect(maps.Values(term.Params)), term.TermNorm)
		for _, n := range norms {
			if !(n.Norm >= 0 && n.Norm < 1e30) || n.Relative != nil && !(*n.Relative >= 0) {
				return fmt.Errorf("has the impossible gradient %+v of term %.50q", n, term.Name)
			}
		}
		if len(terms) > most || term.Name == "" || term.Params[""].Norm > 0 || term.Value != nil &&
			math.Abs(*term.Value) > 1e30 {
			return fmt.Errorf("has %d terms, one called %.50q; at most %d are read", len(terms), term.Name, most)
		}
	}

	return nil
}
