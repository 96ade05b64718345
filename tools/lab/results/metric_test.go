package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
)

// rounds returns rounds of two clients in two domains with the given accuracies; the second client has twice as many
// examples.
func rounds(accuracies ...[2]float64) []Round {
	var out []Round
	for i, a := range accuracies {
		mean := (a[0] + a[1]) / 2
		own := &metrics.Evaluation{Values: map[string]float64{metrics.ClientStd: 0, metrics.Accuracy: mean,
			metrics.Weighted: (a[0] + 2*a[1]) / 3, metrics.Worst: min(a[0], a[1]), metrics.F1: mean / 4,
			metrics.DomainMean: mean, metrics.DomainStd: math.Abs(a[0]-a[1]) / 2}, PerClient: a[:],
			PerDomain: map[string]float64{"Art": a[0], "Photo": a[1]}}
		global := &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: mean / 2},
			PerClient: []float64{a[0] / 2, a[1] / 2}}
		out = append(out, Round{Record: record.Record{Round: i, Tested: true, Evaluation: own,
			Evaluations: record.Evaluations{Global: global, Personal: own},
			Loss:        new(float64(i)), BytesUp: 100 * i, BytesDown: 50, Seconds: float64(i + 1), TestSizes: []int{10,
				20}}})
	}
	return out
}

// accurate returns an evaluation with only an accuracy.
func accurate(accuracy float64) *metrics.Evaluation {
	return &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: accuracy}}
}

func metric(t *testing.T, name string) Metric {
	t.Helper()
	m, err := ParseMetric(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The numbers are computed by hand from seven rounds. Round 3 was not tested, and evaluation sets were tested after the
// last round. The mean over sets covers other data sets, and therefore not the new classes of the same data set.
func TestMetrics(t *testing.T) {
	r := &Run{State: Done, Rounds: rounds([2]float64{0, .2}, [2]float64{.2, .4}, [2]float64{.8, 1}, [2]float64{},
		[2]float64{.4, .6}, [2]float64{.5, .7}, [2]float64{.6, .7})}
	r.Rounds[3].Record = record.Record{Round: 3, Loss: new(3.), BytesUp: 300, BytesDown: 50, Seconds: 4}
	r.Rounds[6].EvaluationSets = map[string]record.SetResult{"new": {Evaluation: accurate(.3)},
		"pets": {Evaluation: accurate(.5)}}
	quarter := .25
	r.Rounds[6].Attack = &record.Attack{Global: &quarter, SuccessPersonal: &quarter}
	r.Rounds[5].Notes, r.Rounds[6].Notes = map[string]float64{"epsilon": 2.5}, map[string]float64{"epsilon": 3.5}
	for _, c := range []struct {
		name string
		want float64
	}{
		{"note:epsilon", 3.5}, {"note:Epsilon@last2", 3}, {"last", .65}, {"accuracy", .65}, {"best", .9},
		{"last5", (.3 + .9 + .5 + .6 + .65) / 5}, {"last10", (.1 + .3 + .9 + .5 + .6 + .65) / 6},
		{"global", .325}, {"personal", .65}, {"weighted", 2. / 3}, {"worst", .6}, {"last2", .625}, {"accuracy@last2",
			.625}, {"client-std", 0}, {"worst@best", .8}, {"f1", .1625}, {"domain:Art", .6}, {"domain:art", .6},
		{"domain:Photo@last5", (.4 + 1 + .6 + .7 + .7) / 5}, {"domain-mean", .65}, {"domain-std", .05},
		{"set:new", .3}, {"set-mean", .5}, {"global/honest", .25}, {"personal/attack-success", .25},
		{"loss", 6}, {"loss@last5", 4}, {"bytes", 350}, {"seconds", 4}, {"seconds@last", 7},
	} {
		if got, ok := metric(t, c.name).Value(r); !ok || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s is %v, want %v", c.name, got, c.want)
		}
	}
	if main := MainMetrics("last", []*Group{{Runs: []*Run{r}}}); !slices.Contains(main, "note:epsilon") {
		t.Errorf("the main metrics are %v", main)
	}
	for _, name := range []string{"set:old", "domain:Sketch", "note:delta"} {
		if got, ok := metric(t, name).Value(r); ok {
			t.Errorf("%s is %v, want none", name, got)
		}
	}
	for name, want := range map[string]string{"last": "[0.6 0.7]", "global@best": "[0.4 0.5]", "f1": "[0.6 0.7]",
		"loss": "[0.6 0.7]"} {
		if got := fmt.Sprint(metric(t, name).PerClient(r)); got != want {
			t.Errorf("%s per client is %s, want %s", name, got, want)
		}
	}
}

// TestEvaluationMetrics: of three rounds with accuracies .1, .9 and .65 the validation data selects round 1 (.9), the
// first of two equal rounds, though round 2 is equally good. A later window does not change this. Other numbers are
// read in the selected round.
func TestEvaluationMetrics(t *testing.T) {
	r := &Run{State: Done, Rounds: rounds([2]float64{0, .2}, [2]float64{.8, 1}, [2]float64{.6, .7})}
	for i, v := range []float64{.3, .7, .7} {
		r.Rounds[i].View = "personal"
		r.Rounds[i].Validation = &record.Validation{Evaluations: record.Evaluations{Global: accurate(1 - v),
			Personal: accurate(v)}}
	}
	last := &r.Rounds[2]
	own := last.Evaluation.Values
	own[metrics.ECE], own[metrics.Worst10], own[metrics.OwnClasses] = .125, .6, .75
	last.BaseToNew = &record.BaseToNew{Global: &metrics.Generalisation{HM: .1},
		Personal: &metrics.Generalisation{HM: .4,
			HM3: .3}}
	last.NewClients = map[string]record.SetResult{"0": {Evaluation: accurate(.2)},
		"10": {Evaluation: accurate(.35)}}
	for name, want := range map[string]float64{"best-val": .9, "worst@best-val": .8, "global@best-val": .45, "val": .7,
		"val@best-val": .7,
		"ece":          .125, "worst10": .6, "own-classes": .75, "hm": .4, "hm3": .3, "new:0": .2, "new:10": .35} {
		if got, ok := metric(t, name).Value(r); !ok || math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := fmt.Sprint(metric(t, "best-val").PerClient(r)); got != "[0.8 1]" {
		t.Errorf("per client %s", got)
	}
	groups := []*Group{{Runs: []*Run{r}}}
	if main := MainMetrics("last", groups); !slices.Contains(main, "best-val") ||
		slices.Index(main, "new:0") > slices.Index(main, "new:10") {
		t.Errorf("the main metrics are %v", main)
	}
	// The columns beside the selected round's accuracy show evaluation sets of the selected round, or of the last round
	// if the selected round was not tested on them.
	last.EvaluationSets = map[string]record.SetResult{"base": {Evaluation: accurate(.5)},
		"new": {Evaluation: accurate(.5)}}
	r.Rounds[1].EvaluationSets = map[string]record.SetResult{"base": {Evaluation: accurate(.8)}}
	if main := MainMetrics("best-val", groups); !slices.Contains(main, "set:base@best-val") || !slices.Contains(main,
		"set:new") || !slices.Contains(main, "new:0") {
		t.Errorf("beside best-val stand %v", main)
	}
	if got, ok := metric(t, "set:base@best-val").Value(r); !ok || got != .8 {
		t.Errorf("the set in the selected round is %v", got)
	}
	if got := DefaultMetric([]*Group{{Runs: []*Run{{BestVal: true}, {BestVal: true}}}}); got != "best-val" {
		t.Errorf("runs that select by validation data show %s", got)
	}
	r.Rounds[1].Validation.Personal.Values[metrics.Accuracy] = 1.5
	if err := r.Rounds[1].Check(); err == nil {
		t.Error("a validation accuracy of 1.5 is taken")
	}
	for i := range r.Rounds {
		r.Rounds[i].Validation = nil
	}
	for _, name := range []string{"best-val", "new:5"} {
		if got, ok := metric(t, name).Value(r); ok {
			t.Errorf("%s is %v, want none", name, got)
		}
	}
}

func TestMetricNames(t *testing.T) {
	for _, name := range []string{"", "accuraci", "last@best", "last1", "last05", "last-5", "all", "domain", "domain:",
		"f1:x", "f1@never", "set", "note"} {
		if m, err := ParseMetric(name); err == nil || !strings.Contains(err.Error(), "docs/evaluation.md") {
			t.Errorf("%q: %+v, %v", name, m, err)
		}
	}
	for _, c := range []struct{ name, in, want string }{{"last10", "domain:Art", "domain:Art@last10"},
		{"last", "domain:Art", "domain:Art"}, {"bytes", "domain:Art", "domain:Art"}, {"best", "seconds", "seconds"}} {
		q, arg, _ := strings.Cut(c.in, ":")
		got := metric(t, c.name).WithDefinition(q, arg)
		if got.Name != c.want || !same(metric(t, got.Name), got) {
			t.Errorf("%s in the rounds of %s is %+v, want %s", c.in, c.name, got, c.want)
		}
	}
}

func TestRoundsRefused(t *testing.T) {
	good := lines([2]float64{.1, .2})
	for _, c := range []struct{ line, say string }{
		{"nonsense", "not a round"}, {`{"format":2,"round":2}`, "is round 2, where 1"},
		{`{"format":2,"round":1,"accuracy":1.5}`, "accuracy 1.5, which is not between 0 and 1"},
		{`{"format":2,"round":1,"tested":true,"accuracy":0.5}`, "without its evaluations"},
		{`{"format":2,"round":1,"per_client":[0.1],"test_sizes":[1,2]}`, "different lengths"},
		{`{"format":2,"round":1,"loss":1e300}`, "impossible"},
		{`{"format":2,"round":1,"notes":{"epsilon":1e300}}`, "impossible note"},
		{`{"format":2,"round":1,"seconds":-1}`, "impossible"},
		{`{"format":2,"round":1,"drift":[{"client":3,"norm":-1}]}`, "impossible update of client 3"},
		{`{"format":2,"round":1,"drift":[{"client":3,"norm":1,"cosine":1.5}]}`, "impossible update of client 3"},
	} {
		got, err := ReadRounds(strings.NewReader(good + c.line + "\n" + good))
		if err == nil || len(got) != 1 || !strings.Contains(err.Error(), "line 2 ") || !strings.Contains(err.Error(),
			c.say) {
			t.Errorf("%s: %d rounds, %v", c.line, len(got), err)
		}
	}
}

// Over seeds: values 0.5, 0.7 and 0.9 have mean 0.7 and sample deviation sqrt(0.08/2) = 0.2.
func TestOverSeeds(t *testing.T) {
	g := &Group{Labels: map[string]string{}}
	for i, v := range []float64{.5, .7, .9} {
		g.Runs = append(g.Runs, &Run{Seed: uint64(i + 1), State: Done, Rounds: rounds([2]float64{.1, .1},
			[2]float64{v, v})})
	}
	g.Runs = append(g.Runs, &Run{Seed: 4, State: Unfinished, Rounds: rounds([2]float64{.5, .5})})
	s := g.Stat(metric(t, "last"))
	if s.N() != 3 || math.Abs(s.Mean()-.7) > 1e-12 || math.Abs(s.Std()-.2) > 1e-12 {
		t.Errorf("%+v: %v ± %v", s, s.Mean(), s.Std())
	}
	if one := (Stat{Values: []float64{1}}); !math.IsNaN(one.Std()) || !math.IsNaN((Stat{}).Mean()) {
		t.Error("one seed has a deviation, or none a mean")
	}
	c := Curves([]*Group{g}, metric(t, "last"))
	if fmt.Sprint(c.Rounds, c.N) != "[1 2] [3 3]" || math.Abs(c.Mean[1]-.7) > 1e-12 || math.Abs(c.Std[1]-.2) > 1e-12 {
		t.Errorf("curve %+v", c)
	}
	if c := Curves([]*Group{{Runs: g.Runs[3:]}}, metric(t, "last")); fmt.Sprint(c.Mean, c.N) != "[0.5] [1]" {
		t.Errorf("curve of an unfinished run %+v", c)
	}
	// Means seed by seed: seeds 1 and 3 are common, with 1+3 and 3+5.
	m := Mean([]Stat{{[]uint64{1, 2, 3}, []float64{1, 9, 3}}, {[]uint64{1, 3}, []float64{3, 5}}})
	if fmt.Sprint(m) != "{[1 3] [2 4]}" {
		t.Errorf("mean of two %v", m)
	}
}
