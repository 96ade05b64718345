package results

import (
	"slices"
	"strconv"
	"strings"

	"promptfed/federation/engine/metrics"
	"promptfed/runtime/convert"
)

// AllMetrics names every metric that some groups may have: the accuracy in several windows and evaluations, and every
// other quantity.
func AllMetrics(groups []*Group) []string {
	return append([]string{metrics.Last, metrics.Best, metrics.BestVal, metrics.Last + "5", metrics.Last + "10",
		GlobalView, PersonalView}, otherMetrics(groups, true)...)
}

// RoundMetrics names every metric that single rounds of some groups may have: the accuracy, its evaluations, and every
// other quantity that is not defined as the first round with some accuracy.
func RoundMetrics(groups []*Group) []string {
	return append([]string{metrics.Accuracy, GlobalView, PersonalView}, otherMetrics(groups, false)...)
}

// otherMetrics names the metrics of some groups besides the accuracy, with or without those of the first round.
func otherMetrics(groups []*Group, first bool) (out []string) {
	for _, q := range metrics.Definitions() {
		if q.Name != metrics.Accuracy && (first || q.Window != metrics.First) {
			out = append(out, instances(q, groups)...)
		}
	}
	return out
}

// instances names the metrics of a definition that some groups may have, in its own window, such as one per domain.
func instances(q metrics.Definition, groups []*Group) []string {
	all := []string{""}
	switch {
	case q.Argument == metrics.PercentPlaceholder:
		all = targets(groups)
	case q.Arguments != nil:
		all = Arguments(q.Name, groups)
	}

	for i, a := range all {
		if all[i] = q.Name; a != "" {
			all[i] += ":" + a
		}
	}

	return all
}

// targets returns the target accuracies, in percent, of the groups' configurations (eval.target).
func targets(groups []*Group) []string {
	var all []float64
	for r := range Runs(groups) {
		if r.Target > 0 {
			all = append(all, r.Target)
		}
	}

	slices.Sort(all)
	return convert.Slice(slices.Compact(all), func(t float64) string { return strconv.FormatFloat(t, 'g', -1, 64) })
}

// epsilons are the notes of differential privacy that tables show beside accuracies.
var epsilons = []string{"epsilon", "epsilon_nominal", "epsilon_local", "epsilon_local_nominal"}

// mostSets is the largest number of evaluation sets with a column each.
const mostSets = 4

// MainMetrics lists the metrics of a table with one line per group: the asked metric, and every other metric of some
// run. It omits domains, notes other than privacy's, and a large number of evaluation sets. A metric of an evaluation
// covers the rounds of the asked metric, if the records have it there. If all runs report one evaluation, its
// accuracy has one column.
func MainMetrics(asked string, groups []*Group) []string {
	metric, err := ParseMetric(asked)
	if err != nil {
		return []string{asked}
	}

	out := []string{asked}
	add := func(name string, needed bool) {
		if !slices.Contains(out, name) && (needed || measured(name, groups)) {
			out = append(out, name)
		}
	}

	accuracy := usual(metrics.Accuracy, "")
	if accuracy.Name = metrics.Last; metric.Evaluated && metric.Window != metrics.First {
		accuracy.Name, accuracy.window = metric.window, metric.window
	}

	headlines := accuracy.Views(groups)
	for _, view := range []string{GlobalView, PersonalView} {
		if !metric.of(metrics.Accuracy) || metric.view != "" || len(headlines) != 1 || headlines[0] != view {
			add(accuracy.InEvaluation(view).Name, true)
		}
	}

	if !metric.of(metrics.Accuracy) {
		add(accuracy.Name, false)
	}

	for _, window := range []string{metrics.BestVal, metrics.Best} {
		add(window, false)
	}

	for _, definition := range metrics.Definitions() {
		names := instances(definition, groups)
		switch {
		case definition.Name == metrics.Accuracy, definition.Name == metrics.Domain, definition.Name == metrics.Set &&
			len(names) > mostSets:
			continue
		case definition.Name == metrics.Note:
			names = slices.DeleteFunc(names, func(name string) bool {
				return !slices.Contains(epsilons, strings.TrimPrefix(name, metrics.Note+":"))
			})
		}

		for _, name := range names {
			one, err := ParseMetric(name)
			if err != nil {
				continue // the set's name is not valid in a metric
			}
			if in := accuracy.WithDefinition(definition.Name, one.arg); definition.Evaluated &&
				in.inRoundsOf(accuracy, groups) {
				one = in
			}
			add(one.Name, false)
		}
	}

	return out
}

// measured reports whether some run has the metric.
func measured(name string, groups []*Group) bool {
	m, err := ParseMetric(name)
	return err == nil && slices.ContainsFunc(groups, func(g *Group) bool {
		return slices.ContainsFunc(g.Runs, func(r *Run) bool {
			_, ok := m.Value(r)
			return ok
		})
	})
}

// inRoundsOf reports whether every run with the metric has it in the rounds of another metric.
func (m Metric) inRoundsOf(other Metric, groups []*Group) bool {
	for r := range Runs(groups) {
		if len(m.whole().rounds(r)) == 0 {
			continue
		}
		if _, ok := m.Value(r); !ok || !slices.Equal(m.rounds(r), other.rounds(r)) {
			return false
		}
	}

	return true
}
