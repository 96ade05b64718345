package results

import (
	"fmt"
	"maps"
	"slices"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/method"
)

// The two evaluations of a run.
var (
	GlobalView   = method.GlobalView.String()
	PersonalView = method.PersonalView.String()
)

// Select sets the headline evaluation of all runs: GlobalView, PersonalView, or with record.MethodView the evaluation
// in each method's paper. An empty view keeps each run's own headline.
func (r *Results) Select(view string) {
	for run := range Runs(r.Groups) {
		if view == record.MethodView {
			run.show(run.Summary.MethodView)
		} else {
			run.show(view)
		}
	}
}

// show sets the headline evaluation of a run; an empty one changes nothing.
func (r *Run) show(view string) {
	if view == "" {
		return
	}

	kind := kindOf(view)
	r.View = view
	for i := range r.Rounds {
		r.Rounds[i] = r.Rounds[i].in(kind)
	}
}

// kindOf parses the name of an evaluation.
func kindOf(view string) method.View {
	if view == PersonalView {
		return method.PersonalView
	}
	return method.GlobalView
}

// in returns the round with the given evaluation as headline.
func (r Round) in(kind method.View) Round {
	r.View, r.Evaluation = kind.String(), r.Evaluations.Of(kind)
	r.EvaluationSets, r.NewClients = testedIn(r.EvaluationSets, kind), testedIn(r.NewClients, kind)
	return r
}

// testedIn returns the results of several tests with the given evaluation as headline.
func testedIn(tests map[string]record.SetResult, kind method.View) map[string]record.SetResult {
	out := maps.Clone(tests)
	for name, t := range out {
		t.Evaluation = t.Evaluations.Of(kind)
		out[name] = t
	}
	return out
}

// headline returns a round with the metric's evaluation as headline.
func (m Metric) headline(r Round) Round {
	if m.view != "" {
		return r.in(kindOf(m.view))
	}
	return r
}

// InEvaluation returns the metric in one evaluation, independent of the runs' headlines. A metric without evaluations
// is unchanged.
func (m Metric) InEvaluation(view string) Metric {
	if !m.UsesHeadline() {
		return m
	}

	switch m.view = view; {
	case !m.of(metrics.Accuracy):
		m.Name = view + "/" + m.Name
	case m.window == metrics.Last:
		m.Name = view
	default:
		m.Name = view + "@" + m.window
	}

	return m
}

// View returns the evaluation of the metric in a run; empty for metrics without evaluations, such as a loss.
func (m Metric) View(r *Run) string {
	switch {
	case !m.Evaluated:
		return ""
	case m.view != "":
		return m.view
	}
	return r.View
}

// UsesHeadline reports whether the metric uses each run's headline evaluation.
func (m Metric) UsesHeadline() bool { return m.view == "" && m.Evaluated }

// Views lists the evaluations of the metric in some groups' finished runs.
func (m Metric) Views(groups []*Group) []string {
	var out []string
	for r := range DoneRuns(groups) {
		if v := m.View(r); v != "" {
			out = AppendMissing(out, v)
		}
	}

	slices.Sort(out)
	return out
}

// LacksEvaluation reports whether the run's method lacks the evaluation of the metric.
func (m Metric) LacksEvaluation(r *Run) bool {
	view, tested := m.View(r), false
	for _, round := range r.Rounds {
		if round.Tested && round.Evaluations.Of(kindOf(view)) != nil {
			return false
		}
		tested = tested || round.Tested
	}

	return tested && view != ""
}

// TitleOf describes the metric and its rounds in words. It states if runs of some groups have fewer tested rounds than
// the window.
func (m Metric) TitleOf(groups []*Group) string {
	if w := m.WindowOf(groups); w != "" {
		return m.subject() + ", " + w
	}
	return m.subject()
}

// WindowOf describes the rounds behind the metric in some groups' runs; empty if no run has the metric.
func (m Metric) WindowOf(groups []*Group) string {
	n, ok := metrics.LastN(m.window)
	if !ok || n < 2 {
		return metrics.DescribeWindow(m.window)
	}

	least, most, done := n, 0, false
	for r := range DoneRuns(groups) {
		done = true
		if have := len(m.whole().rounds(r)); have > 0 {
			least, most = min(least, have), max(most, min(n, have))
		}
	}

	switch {
	case most == 0 && done: // no run has the evaluation, so nothing was averaged
		return ""
	case most == 0 || least == n:
		return metrics.DescribeWindow(m.window)
	case most == 1:
		return "only tested round"
	case most < n:
		return fmt.Sprintf("mean of the %s tested rounds that there are", Span(least, most))
	}

	return metrics.DescribeWindow(m.window) + fmt.Sprintf(", of some runs of the %d that there are", least)
}

// whole returns the metric over all rounds.
func (m Metric) whole() Metric {
	m.window = metrics.All
	return m
}
