package results

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
)

// one returns an evaluation with the given accuracies of two clients.
func one(a, b float64) *metrics.Evaluation {
	return &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: (a + b) / 2, metrics.F1: a,
		metrics.Worst: min(a, b)}, PerClient: []float64{a, b}, PerDomain: map[string]float64{"Art": b}}
}

// viewed returns a finished run of one round with the given evaluations and the headline view.
func viewed(seed uint64, view string, e record.Evaluations) *Run {
	r := &Run{Seed: seed, State: Done, Rounds: []Round{{Record: record.Record{Tested: true, Evaluations: e,
		TestSizes:      []int{4, 4},
		EvaluationSets: map[string]record.SetResult{"new": {Evaluations: e}}}}}}
	r.Summary.MethodView = view
	r.show(view)
	return r
}

// TestSelect: the headline of a run and all its headline metrics follow the selected evaluation. A metric of a named
// evaluation does not. If the method lacks the evaluation the metric has no number, and this differs from a missing
// number.
func TestSelect(t *testing.T) {
	shared := viewed(1, GlobalView, record.Evaluations{Global: one(.25, .5), Personal: one(.75, 1)})
	private := viewed(1, PersonalView, record.Evaluations{Personal: one(.5, .5)})
	res := &Results{Groups: []*Group{{Runs: []*Run{shared}}, {Runs: []*Run{private}}}}
	for _, c := range []struct {
		view, metric    string
		shared, private float64 // NaN means absent
	}{
		{"", "last", .375, .5}, {"", "f1", .25, .5}, {"", "domain:Art", .5, .5}, {"", "set:new", .375, .5},
		{"", "global", .375, math.NaN()},
		{GlobalView, "last", .375, math.NaN()}, {GlobalView, "worst", .25, math.NaN()}, {GlobalView, "set:new", .375,
			math.NaN()},
		{GlobalView, "personal", .875, .5}, {GlobalView, "personal/worst@last5", .75, .5},
		{GlobalView, "personal/domain:Art", 1, .5},
		{PersonalView, "last", .875, .5}, {PersonalView, "f1@best", .75, .5}, {PersonalView, "global/f1", .25,
			math.NaN()},
		{PersonalView, "global/set:new", .375, math.NaN()}, {record.MethodView, "last", .375, .5},
	} {
		res.Select(c.view)
		for i, want := range []float64{c.shared, c.private} {
			m, r := metric(t, c.metric), []*Run{shared, private}[i]
			got, ok := m.Value(r)
			if ok == math.IsNaN(want) || ok && math.Abs(got-want) > 1e-12 || m.LacksEvaluation(r) != math.IsNaN(want) {
				t.Errorf("--view %q: %s of run %d is %v, %v, absent %v; want %v", c.view, c.metric, i, got, ok,
					m.LacksEvaluation(r), want)
			}
		}
	}
	for _, name := range []string{"global/loss", "global/", "other/f1", "personal/note:epsilon", "global/bytes"} {
		if m, err := ParseMetric(name); err == nil {
			t.Errorf("%s is %+v", name, m)
		}
	}
	for asked, want := range map[string]string{"last": "global", "last10": "global@last10",
		"f1@last5": "global/f1@last5", "domain:Art": "global/domain:Art", "bytes": "bytes"} {
		m := metric(t, asked).InEvaluation(GlobalView)
		if parsed := metric(t, m.Name); m.Name != want || !same(parsed, m) {
			t.Errorf("%s of the global evaluation is %+v, which reads as %+v; want %s", asked, m, parsed, want)
		}
	}
	in := metric(t, "personal@last5").WithDefinition(metrics.Domain, "Art")
	if in.Name != "personal/domain:Art@last5" || !same(metric(t, in.Name), in) {
		t.Errorf("a domain in the personal evaluation is %+v", in)
	}
}

// same reports whether two metrics have one definition, argument, window and evaluation.
func same(a, b Metric) bool {
	return a.Name == b.Name && a.of(b.Definition.Name) && a.arg == b.arg && a.window == b.window && a.view == b.view
}

// TestCompareStaysWithin: a global and a personal evaluation are not paired, and neither are runs with different data.
// Within one evaluation they are. By hand: personal .75 and 1 against .5 and .5. Accuracies of all clients do not
// replace accuracies in a domain.
func TestCompareStaysWithin(t *testing.T) {
	a := viewed(1, GlobalView, record.Evaluations{Global: one(.25, .5), Personal: one(.75, 1)})
	b := viewed(1, PersonalView, record.Evaluations{Personal: one(.5, .5)})
	groups := []*Group{{Labels: map[string]string{"method": "A"}, Runs: []*Run{a}},
		{Labels: map[string]string{"method": "B"}, Runs: []*Run{b}}}
	for _, c := range []struct {
		metric string
		n      int
	}{{"last", 0}, {"global", 0}, {"personal", 2}, {"personal/domain:Art", 0}} {
		got := Compare(groups, "method", "", metric(t, c.metric), OverClients)[0]
		if got.N != c.n || c.n > 0 && math.Abs(got.Difference-.375) > 1e-12 {
			t.Errorf("%s: %d pairs, difference %v", c.metric, got.N, got.Difference)
		}
	}
	b.TestData = "other images"
	if got := Compare(groups, "method", "", metric(t, "personal"), OverClients)[0]; got.N != 0 {
		t.Errorf("runs on different data give %d pairs", got.N)
	}
}

// TestTitleOf: the title of a window with more rounds than the run does not claim the missing rounds.
func TestTitleOf(t *testing.T) {
	grouped := func(rounds ...int) []*Group {
		g := &Group{}
		for i, n := range rounds {
			r := &Run{Seed: uint64(i), State: Done}
			for k := range n {
				r.Rounds = append(r.Rounds, Round{Record: record.Record{Round: k, Tested: k%2 == 1,
					Evaluation: map[bool]*metrics.Evaluation{true: one(.5, .5)}[k%2 == 1]}})
			}
			g.Runs = append(g.Runs, r)
		}
		return []*Group{g}
	}
	for want, groups := range map[string][]*Group{
		"accuracy, mean of the last 10 tested rounds":                                       grouped(20, 40),
		"accuracy, mean of the 2 tested rounds that there are":                              grouped(4, 5),
		"accuracy, mean of the 2 to 4 tested rounds that there are":                         grouped(4, 8),
		"accuracy, only tested round":                                                       grouped(2),
		"accuracy, mean of the last 10 tested rounds, of some runs of the 3 that there are": grouped(6, 20),
	} {
		if got := metric(t, "last10").TitleOf(groups); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	if got := metric(t, "global@last10").TitleOf(grouped(20)); got != "global accuracy" {
		t.Errorf("of runs without a global evaluation: %s", got)
	}
	if got := fmt.Sprint(metric(t, "last").TitleOf(grouped(4)),
		metric(t, "bytes").TitleOf(grouped(4))); !strings.Contains(got,
		"last tested round") || !strings.Contains(got, "mean of all rounds") {
		t.Error(got)
	}
}
