package results

import (
	"maps"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
)

// evaluations read quantities beside the clients' accuracy on test data (docs/evaluation.md).
var evaluations = map[string]reader{
	metrics.ECE: func(r Round, _ string) (float64, bool) {
		if r.Evaluation == nil || r.ECE == nil {
			return 0, false
		}
		return *r.ECE, true
	},
	metrics.Worst10:    headline(func(e *record.Evaluation) float64 { return e.Worst10 }),
	metrics.OwnClasses: headline(func(e *record.Evaluation) float64 { return e.OwnClasses }),
	metrics.HM:         generalised(func(g *record.Generalisation) float64 { return g.HM }),
	metrics.HM3:        generalised(func(g *record.Generalisation) float64 { return g.HM3 }),
	metrics.New: func(r Round, steps string) (float64, bool) {
		x := r.NewClients[steps]
		// what a client has of its own after its steps, whatever headlines are of
		if x.Evaluations.Personal != nil {
			return evaluated(x.Evaluations.Personal, accuracy)
		}
		return evaluated(x.Evaluation, accuracy)
	},
	metrics.Val: func(r Round, _ string) (float64, bool) { return r.validation() },
	metrics.Honest: func(r Round, _ string) (float64, bool) {
		if r.Attack == nil {
			return evaluated(r.Evaluation, accuracy)
		}
		return r.attacked(r.Attack.Global, r.Attack.Personal)
	},
	metrics.Success: func(r Round, _ string) (float64, bool) {
		if r.Attack == nil {
			return 0, false
		}
		return r.attacked(r.Attack.SuccessGlobal, r.Attack.SuccessPersonal)
	},
}

// attacked is a number of the evaluation that the round's headline is of.
func (r Round) attacked(global, personal *float64) (float64, bool) {
	if r.view() == method.PersonalView {
		global = personal
	}
	if global == nil {
		return 0, false
	}
	return *global, true
}

// view is the evaluation that the round's headline is of.
func (r Round) view() method.View {
	if r.View == method.PersonalView.String() {
		return method.PersonalView
	}
	return method.GlobalView
}

func generalised(of func(g *record.Generalisation) float64) func(Round, string) (float64, bool) {
	return func(r Round, _ string) (float64, bool) {
		if r.BaseToNew == nil {
			return 0, false
		}
		g := r.BaseToNew.Global
		if r.view() == method.PersonalView {
			g = r.BaseToNew.Personal
		}
		if g == nil {
			return 0, false
		}
		return of(g), true
	}
}

// validation is the accuracy on validation data of the evaluation that the round's headline is of.
func (r Round) validation() (float64, bool) {
	b := r.Validation.Of(r.view())
	if b == nil {
		return 0, false
	}
	return b.Accuracy, true
}

// bestValidated is the round with the best accuracy on validation data, of equal ones the first; none without any.
func bestValidated(rounds []Round) []int {
	var out []int
	top := 0.0
	for i, r := range rounds {
		if v, ok := r.validation(); ok && (out == nil || v > top) {
			out, top = []int{i}, v
		}
	}
	return out
}

// shares are the numbers within 0 and 1 that stand beside the round's evaluations.
func (r Round) shares() []float64 {
	var out []float64
	if v := r.Validation; v != nil {
		for _, b := range []*record.AccuracySummary{v.Global, v.Personal} {
			if b != nil {
				out = append(append(out, b.Accuracy, b.Std), b.PerClient...)
			}
		}
	}
	if n := r.BaseToNew; n != nil {
		for _, g := range []*record.Generalisation{n.Global, n.Personal} {
			if g != nil {
				out = append(out, g.Local, g.Base, g.New, g.HM, g.HM3)
			}
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

func together(all ...map[string]reader) map[string]reader {
	out := map[string]reader{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
