package results

import (
	"fmt"
	"slices"

	"promptfed/federation/engine"
	"promptfed/federation/method"
)

// The two evaluations of a run.
var (
	GlobalView   = method.GlobalView.String()
	PersonalView = method.PersonalView.String()
)

// Select makes one evaluation the headline of all runs: GlobalView, PersonalView, or with engine.MethodView the one that each
// method's paper reports. An empty view leaves every run with the one that it was run with.
func (r *Results) Select(view string) {
	for _, g := range r.Groups {
		for _, run := range g.Runs {
			switch view {
			case "":
			case engine.MethodView:
				run.show(run.Summary.MethodView)
			default:
				run.show(view)
			}
		}
	}
}

// show makes an evaluation the headline of a run; an empty one changes nothing.
func (r *Run) show(view string) {
	if view == "" {
		return
	}
	kind := method.GlobalView
	if view == PersonalView {
		kind = method.PersonalView
	}
	was := r.View
	r.View = view
	for i := range r.Rounds {
		round := &r.Rounds[i]
		if round.Old && was == "" { // its headline is the better known of the two
			round.keep(kind)
		}
		round.View, round.Evaluation = view, round.Evaluations.Of(kind)
		for name, x := range round.Exams {
			x.Evaluation = x.Evaluations.Of(kind)
			round.Exams[name] = x
		}
	}
}

// keep puts the headline of an older version's round, which has all numbers, in the place of what it has of that evaluation.
func (r *Round) keep(kind method.View) {
	put := func(e *engine.Evaluations, headline *engine.Evaluation) {
		if kind == method.PersonalView {
			e.Personal = headline
		} else {
			e.Global = headline
		}
	}
	if r.Evaluation != nil {
		put(&r.Evaluations, r.Evaluation)
	}
	for name, x := range r.Exams {
		put(&x.Evaluations, x.Evaluation)
		r.Exams[name] = x
	}
}

// View is the evaluation that the metric of a run is of; empty for what belongs to neither, such as a loss, and where an older
// version did not say it.
func (m Metric) View(r *Run) string {
	switch m.quantity {
	case Global:
		return GlobalView
	case Personal:
		return PersonalView
	case Loss, Bytes, Seconds, Note, New:
		return ""
	}
	return r.View
}

// Follows tells whether the metric is of whatever evaluation is the headline.
func (m Metric) Follows() bool {
	return !slices.Contains([]string{Global, Personal, Loss, Bytes, Seconds, Note, New}, m.quantity)
}

// IsAccuracy tells whether the metric is the headline's accuracy, which both evaluations have a metric for.
func (m Metric) IsAccuracy() bool { return m.quantity == Accuracy }

// Views lists the evaluations that the metric of some groups' finished runs is of.
func (m Metric) Views(groups []*Group) []string {
	var out []string
	for _, g := range groups {
		for _, r := range g.Done() {
			if v := m.View(r); v != "" && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	slices.Sort(out)
	return out
}

// Absent tells whether the run's method does not have the evaluation that the metric is of.
func (m Metric) Absent(r *Run) bool {
	view, tested := m.View(r), false
	for _, round := range r.Rounds {
		if !round.Tested {
			continue
		}
		if view == GlobalView && round.Evaluations.Global != nil || view == PersonalView && round.Evaluations.Personal != nil {
			return false
		}
		tested = true
	}
	return tested && view != ""
}

// TitleOf is Title, and says where the runs of some groups have less tested rounds than a window asks for.
func (m Metric) TitleOf(groups []*Group) string {
	n, ok := lastN(m.window)
	if !ok || n < 2 {
		return m.Title()
	}
	least, most := n, 0
	for _, g := range groups {
		for _, r := range g.Done() {
			whole := m
			whole.window = all
			if have := len(whole.rounds(r)); have > 0 {
				least, most = min(least, have), max(most, min(n, have))
			}
		}
	}
	title := m
	title.window = ""
	switch what := title.Title(); {
	case most == 0 || least == n:
		return m.Title()
	case most == 1:
		return what + "only tested round"
	case least == most:
		return what + fmt.Sprintf("mean of the %d tested rounds that there are", most)
	case most < n:
		return what + fmt.Sprintf("mean of the %d to %d tested rounds that there are", least, most)
	}
	return m.Title() + fmt.Sprintf(", of some runs of the %d that there are", least)
}
