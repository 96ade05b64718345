package results

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/record"
	"promptfed/federation/method"
)

// Quantities of evaluations beside the clients' accuracy on test data (docs/evaluation.md).
const (
	ECE        = "ece"            // expected calibration error
	Worst10    = "worst10"        // the lowest tenth of the clients
	OwnClasses = "own-classes"    // only the classes compete that a client trains on
	HM         = "hm"             // base and new
	HM3        = "hm3"            // local, base and new
	New        = "new"            // clients that never trained, after some steps
	Val        = "val"            // validation data
	Honest     = "honest"         // clients that do not attack
	Success    = "attack-success" // of a backdoor
)

var evaluations = map[string]quantity{
	ECE: {"expected calibration error", last, Percent, true, func(r Round, _ string) (float64, bool) {
		if r.Evaluation == nil || r.ECE == nil {
			return 0, false
		}
		return *r.ECE, true
	}},
	Worst10: {"accuracy of the worst tenth of the clients", last, Percent, false,
		headline(func(e *record.Evaluation) float64 { return e.Worst10 })},
	OwnClasses: {"accuracy among each client's own classes", last, Percent, false,
		headline(func(e *record.Evaluation) float64 { return e.OwnClasses })},
	HM: {"harmonic mean of base and new", last, Percent, false,
		generalised(func(g *record.Generalisation) float64 { return g.HM })},
	HM3: {"harmonic mean of local, base and new", last, Percent, false,
		generalised(func(g *record.Generalisation) float64 { return g.HM3 })},
	New: {"accuracy of clients that never trained, by number of local steps:", last, Percent, false,
		func(r Round, steps string) (float64, bool) {
			x := r.NewClients[steps]
			// what a client has of its own after its steps, whatever headlines are of
			if x.Evaluations.Personal != nil {
				return evaluated(x.Evaluations.Personal, accuracy)
			}
			return evaluated(x.Evaluation, accuracy)
		}},
	Val: {"accuracy on validation data", last, Percent, false, func(r Round, _ string) (float64,
		bool) {
		return r.validation()
	}},
	Honest: {"accuracy of clients that do not attack", last, Percent, false, func(r Round, _ string) (float64, bool) {
		if r.Attack == nil {
			return evaluated(r.Evaluation, accuracy)
		}
		return r.attacked(r.Attack.Global, r.Attack.Personal)
	}},
	Success: {"images with the trigger that are classified as the backdoor's target", last, Percent, true, func(r Round,
		_ string) (float64, bool) {
		if r.Attack == nil {
			return 0, false
		}
		return r.attacked(r.Attack.SuccessGlobal, r.Attack.SuccessPersonal)
	}},
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

// named is what stands behind the name of a quantity that is one of several; "" where it is the only one.
func named(quantity string) string {
	switch quantity {
	case Domain, Set, Note:
		return ":NAME"
	case New:
		return ":STEPS"
	case RoundsTo, BytesTo, ParametersTo, SimulatedTo:
		return ":PERCENT"
	}
	return ""
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

// onlySome lists the metrics of evaluations that runs have only where they were asked for, as far as some run has them.
func onlySome(groups []*Group) []string {
	found := names(groups, func(r Round) []string {
		var out []string
		if _, ok := r.validation(); ok {
			out = append(out, bestVal)
		}
		if r.BaseToNew != nil {
			out = append(out, OwnClasses, HM, HM3)
		}
		if r.Attack != nil {
			out = append(out, Honest)
			if _, ok := r.EvaluationSets[record.TriggeredSet]; ok {
				out = append(out, Success)
			}
		}
		for _, steps := range sortedKeys(r.NewClients) {
			out = append(out, New+":"+steps)
		}
		return out
	})
	slices.SortStableFunc(found, func(a, b string) int { // steps as numbers
		x, more := strings.CutPrefix(a, New+":")
		y, both := strings.CutPrefix(b, New+":")
		if !more || !both {
			return 0
		}
		m, _ := strconv.Atoi(x)
		n, _ := strconv.Atoi(y)
		return m - n
	})
	return found
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

func together(all ...map[string]quantity) map[string]quantity {
	out := map[string]quantity{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}
