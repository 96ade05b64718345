package record

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

func TestSummary(t *testing.T) {
	var records []Record
	for i := range 12 {
		records = append(records, Record{Round: i, Tested: i != 3, BytesUp: 10, BytesDown: 20, Seconds: 2})
		if i != 3 {
			records[i].Evaluations.Global = &metrics.Evaluation{Values: map[string]float64{
				metrics.Accuracy: float64(i%7) / 10}}
		}
	}
	// Tested: .0 .1 .2 -- .4 .5 .6 .0 .1 .2 .3 .4; the last five have mean .2, the last ten 2.8/10 = .28.
	s := Summarise(records, method.GlobalView)
	if s.Best != .6 || s.BestRound != 6 || s.Last != .4 || math.Abs(s.Mean5-.2) > 1e-12 ||
		math.Abs(s.Mean10-.28) > 1e-12 || math.Abs(s.Bytes-30) > 1e-9 || s.Seconds != 24 || s.Rounds != 12 {
		t.Errorf("%+v", s)
	}
	if s := Summarise(nil, method.GlobalView); s.Rounds != 0 || s.Bytes != 0 {
		t.Errorf("%+v of nothing", s)
	}
}

// scored returns an evaluation of clients with these accuracies.
func scored(per ...float64) *metrics.Evaluation {
	mean := metrics.Mean(per)
	return &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: mean}, PerClient: per,
		PerDomain: map[string]float64{"x": mean}}
}

// The summary has what rounds warn of, three times at most, and the notes and the simulated time of the last round.
func TestSummaryOfRounds(t *testing.T) {
	records := []Record{{Round: 0, Warnings: []string{"a", "b"}, Notes: map[string]float64{"epsilon": 1},
		Simulated: &message.SimulatedTime{Seconds: 3}}, {Round: 1, Warnings: []string{"c"},
		Notes: map[string]float64{"epsilon": 2}}}
	s := Summarise(records, method.PersonalView)
	if want := []string{"round 1: a", "round 1: b", "round 2: c"}; !slices.Equal(s.RoundWarnings, want) ||
		s.Notes["epsilon"] != 2 || s.Simulated != 3 || s.Headline != nil || s.View != "personal" {
		t.Errorf("%+v", s)
	}
	records[1].Warnings = []string{"c", "d", "e"}
	if s := Summarise(records, method.GlobalView); len(s.RoundWarnings) != 4 ||
		s.RoundWarnings[3] != "and 2 more in other rounds (rounds.jsonl)" {
		t.Errorf("%q", s.RoundWarnings)
	}
	g := scored(.5)
	records = []Record{{Tested: true, Evaluations: Evaluations{Global: g}, Attack: &Attack{}, Untrained: 2}}
	if s := Summarise(records, method.GlobalView); s.Evaluation.PerClient != nil || len(g.PerClient) != 1 ||
		s.Untrained != 2 || s.Attack != records[0].Attack || s.Best != .5 {
		t.Errorf("%+v", s)
	}
}

func TestUnansweredTests(t *testing.T) {
	sets := map[string]SetResult{"b": {Unanswered: []int{2}}, "a": {Unanswered: []int{1, 2, 3, 4, 5, 6, 7}}, "c": {}}
	var lines []string
	for _, u := range MissingTests([]Record{{Round: 3, EvaluationSets: sets},
		{Round: 4, Unanswered: []int{1, 2, 3, 4, 5}}}) {
		lines = append(lines, u.String())
	}
	if want := []string{
		"no answer to evaluation set a of round 4 from clients 1, 2, 3, 4, 5 and 2 more: means are over the others",
		"no answer to evaluation set b of round 4 from client 2: means are over the others",
		"no answer to the test of round 5 from clients 1, 2, 3, 4, 5: means are over the others"}; !slices.Equal(
		lines, want) {
		t.Errorf("%q", lines)
	}
}

// Metrics read the evaluation of the round's headline; of clients that never trained they read what a client has of its
// own, if it has any.
func TestMetricsOfARound(t *testing.T) {
	one, two := .1, .2
	both := ByView[metrics.Generalisation]{Global: &metrics.Generalisation{HM: 3},
		Personal: &metrics.Generalisation{HM: 4}}
	g, p := scored(.3), scored(.4)
	r := Record{Round: 7, View: "global", Evaluation: g, Validation: &Validation{Evaluations: Evaluations{Global: g,
		Personal: p}},
		BaseToNew: &both, Loss: new(5.), Seconds: 6, BytesUp: 10, BytesDown: 5, Notes: map[string]float64{"n": 1},
		Attack:    &Attack{Global: &one, Personal: &two, SuccessGlobal: &two, SuccessPersonal: &one},
		Simulated: &message.SimulatedTime{Seconds: 8},
		NewClients: map[string]SetResult{"0": {Evaluation: g, Evaluations: Evaluations{Personal: p}},
			"5": {Evaluation: g}},
		EvaluationSets: map[string]SetResult{"x": {Evaluation: p}}}
	m := r.Metrics()
	if m.Number != 7 || m.Evaluation != g || m.Validation != g || m.BaseToNew != both.Global || !m.Attacked ||
		*m.Honest != .1 || *m.Success != .2 || m.Bytes != 15 || *m.Simulated != 8 || m.NewClients["0"] != p ||
		m.NewClients["5"] != g || m.Sets["x"] != p {
		t.Errorf("%+v", m)
	}
	r.View = "personal"
	if m := r.Metrics(); m.Validation != p || m.BaseToNew != both.Personal || *m.Honest != .2 || *m.Success != .1 {
		t.Errorf("%+v", m)
	}
	if m := (Record{}).Metrics(); m.Attacked || m.Simulated != nil || m.Sets != nil || m.NewClients != nil ||
		m.Validation != nil {
		t.Errorf("%+v", m)
	}
}

// The effect of an attack is over the clients that do not attack; lists by client are about those that answered.
func TestAttackedBy(t *testing.T) {
	r := Record{Clients: []int{0, 2}, Evaluations: Evaluations{Global: scored(0, .5, 1), Personal: scored(1, 1, 0)},
		EvaluationSets: map[string]SetResult{metrics.TriggeredSet: {Evaluations: Evaluations{Global: scored(.25,
			.75)}, Answered: []int{1, 2}}}}
	r.AttackedBy(nil)
	if r.Attack != nil {
		t.Error("nobody attacks")
	}
	r.AttackedBy([]int{1, 2})
	if a := r.Attack; !slices.Equal(a.Clients, []int{2}) || *a.Global != 0 || *a.Personal != 1 ||
		a.SuccessGlobal != nil || a.SuccessPersonal != nil {
		t.Errorf("%+v", a)
	}
	r.AttackedBy([]int{0, 1})
	if a := r.Attack; *a.Global != 1 || *a.Personal != 0 || *a.SuccessGlobal != .75 {
		t.Errorf("%+v", a)
	}
}

func TestGeneralisation(t *testing.T) {
	set := func(v float64) SetResult { return SetResult{Evaluations: Evaluations{Global: scored(v)}} }
	r := Record{Evaluations: Evaluations{Global: scored(.5), Personal: scored(.9)},
		EvaluationSets: map[string]SetResult{metrics.BaseSet: set(.25)}}
	if r.Generalise() != nil {
		t.Error("without new classes")
	}
	r.EvaluationSets[metrics.NewSet] = set(.75)
	if g := r.Generalise(); g == nil || g.Personal != nil || g.Global.Local != .5 || g.Global.HM != .375 {
		t.Errorf("%+v", g)
	}
	delete(r.EvaluationSets, metrics.BaseSet)
	if r.Generalise() != nil {
		t.Error("without base classes")
	}
	if (*Evaluations)(nil).Of(method.GlobalView) != nil {
		t.Error("of no evaluations")
	}
}

// A record whose sample is secret has no number that tells which clients trained, and the server's evaluation stays.
func TestHideSample(t *testing.T) {
	build := func() *Record {
		return &Record{Clients: []int{1}, Untrained: 2, Simulated: &message.SimulatedTime{}, TestSizes: []int{3},
			BytesUp: 1, BytesDown: 2, ParametersUp: 3, ParametersDown: 4, Attack: &Attack{Clients: []int{1}},
			Validation:  &Validation{Evaluations: Evaluations{Global: scored(.5), Personal: scored(.5)}},
			Evaluations: Evaluations{Personal: scored(.5)},
			EvaluationSets: map[string]SetResult{"x": {Evaluations: Evaluations{Personal: scored(.5),
				Global: scored(1)}}},
			LimitedClients: message.LimitedClients{Refused: []message.Refusal{{}}, Cut: []message.CappedUpload{{}, {}}}}
	}
	r := build()
	r.HideSample(false)
	x := r.EvaluationSets["x"].Evaluations
	if !r.SecretSample || r.Clients != nil || r.Untrained != 0 || r.Simulated != nil || r.TestSizes != nil ||
		r.Attack.Clients != nil || r.Validation.Personal.PerClient != nil || len(r.Validation.Global.PerClient) != 1 ||
		r.Evaluations.Personal.PerClient != nil ||
		r.Evaluations.Personal.PerDomain != nil || x.Personal.PerClient != nil || len(x.Global.PerClient) != 1 ||
		len(r.Refused)+len(r.Cut) > 0 || !slices.Equal(r.Warnings, []string{"3 replies were refused or capped; whose " +
		"they are is secret, as the sample of clients (the server's log has it)"}) ||
		r.BytesUp != 1 || r.ParametersDown != 4 {
		t.Errorf("%+v", r)
	}
	r = build()
	r.Evaluations.Global, r.Validation = scored(1), &Validation{Evaluations: Evaluations{Global: scored(1)}}
	r.HideSample(true)
	if len(r.TestSizes) != 1 || r.BytesUp+r.BytesDown+r.ParametersUp+r.ParametersDown != 0 {
		t.Errorf("%+v", r)
	}
	(&Record{}).HideSample(true)
}

// By hand: the mean over 3 and 1 clients of .5 and .9 is .6. Nothing is above the chance of test images of one class.
func TestZeroShot(t *testing.T) {
	list := []ZeroShot{{Backbone: "a", Clients: 3, Mean: .5, Accuracy: .5, Classes: 4, Chance: .25},
		{Backbone: "b", Clients: 1, Mean: .9,
			Accuracy: .3, Classes: 4, Chance: .3}, {Backbone: "c", Clients: 1, Accuracy: 1, Chance: 1}}
	if v, ok := (Summary{ZeroShot: list[:2]}).ZeroShotMean(); !ok || math.Abs(v-.6) > 1e-15 {
		t.Error(v, ok)
	}
	for _, bad := range []ZeroShot{{Failed: "x", Clients: 1}, {Accuracy: 1}} {
		if v, ok := (Summary{ZeroShot: []ZeroShot{list[0], bad}}).ZeroShotMean(); ok {
			t.Error(v)
		}
	}
	if v, ok := (Summary{}).ZeroShotMean(); ok || v != 0 {
		t.Error(v)
	}
	got := ZeroShotWarnings(append(list, ZeroShot{Backbone: "d", Failed: "too long"}))
	if len(got) != 2 || !strings.HasPrefix(got[0], "zero-shot accuracy of b is 30.0 %, not above chance (30.0 %: the "+
		"larger of 1/4 and the most frequent class): check") ||
		got[1] != "zero-shot accuracy of d could not be computed: too long" {
		t.Errorf("%q", got)
	}
}

// By hand: 64 images at a zero-shot accuracy of .5 have a standard error of .5/8, so .375 and above is not below. The
// warning belongs to the first round below that does not rise, once. Untested rounds do not count.
func TestFalls(t *testing.T) {
	for _, c := range []struct {
		accuracies []float64 // negative for an untested round
		at         int       // round of the warning; -1 for none
	}{{[]float64{.2, .3, .6, .376, .6}, -1}, {[]float64{.6, .37, .36}, 1}, {[]float64{.2, .2, .1}, 1},
		{[]float64{.3, -1, .36, -1, .3, .3}, 4}, {[]float64{.1}, -1}} {
		var records []Record
		for i, a := range c.accuracies {
			r := Record{Round: i, TestSizes: []int{32, 32}}
			if a >= 0 {
				r.Evaluations.Personal = &metrics.Evaluation{Values: map[string]float64{metrics.Accuracy: a}}
			}
			records = append(records, r)
			zeroShot := []ZeroShot{{Clients: 1, Mean: .5}}
			if got := Falls(records, method.PersonalView, zeroShot); got != (i == c.at) {
				t.Errorf("%v: round %d falls: %v", c.accuracies, i, got)
			}
			if Falls(records, method.PersonalView, nil) {
				t.Errorf("%v: round %d falls below an unknown accuracy", c.accuracies, i)
			}
		}
	}
	if !Below(.5, .5+1e-8, 0) || Below(.5, .5+1e-10, 0) {
		t.Error("differences of rounding")
	}
	const more = "more rounds (train.rounds), or a method that starts from words, as kgcoop does"
	for want, got := range map[string]string{"try " + more: Remedy(1, 0),
		"try fewer tokens (options.tokens: 4), a lower learning rate (train.lr: 0.005), " + more: Remedy(16, .02),
		"try fewer tokens (options.tokens: 2), " + more:                                          Remedy(4, 0)} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The last round is the result, or the one that ends the run, or with best-val each that is better than all before.
func TestResult(t *testing.T) {
	for _, c := range []struct {
		plan TestPlan
		of   []float64
		want bool
	}{{TestPlan{}, []float64{-1, -1}, false}, {TestPlan{}, []float64{-1, -1, -1}, true},
		{TestPlan{Patience: 1}, []float64{.5, .5}, true},
		{TestPlan{Patience: 1}, []float64{.5, .6}, false}, {TestPlan{BestVal: true}, []float64{.5, .6}, true},
		{TestPlan{BestVal: true}, []float64{.5, .6, .6}, false}} {
		if got := c.plan.Result(validated(c.of...), method.GlobalView, 3); got != c.want {
			t.Errorf("%+v after %v: %v", c.plan, c.of, got)
		}
	}
}

// A run's records are appended, and read up to the first line that is no record of the next round. A resumed run drops
// lines behind the checkpoint, and takes the last record from the checkpoint.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), RoundsFile)
	j, err := OpenJournal(path, 0, Record{}, nil)
	for i := range 3 {
		if err == nil {
			err = j.Add(Record{Round: i, Seconds: float64(i)})
		}
	}
	if err != nil || len(j.Records) != 3 {
		t.Fatal(err)
	}
	whole := filetest.Read(t, path)
	lines := strings.SplitAfter(string(whole), "\n")
	for name, c := range map[string]struct {
		text string
		want int
	}{"all": {string(whole), 3}, "the end is missing": {string(whole[:len(whole)-1]), 2},
		"a round is missing": {lines[0] + lines[2], 1},
		"no record":          {lines[0] + "x\n" + lines[1], 1}, "nothing": {"", 0}} {
		filetest.Write(t, path, c.text)
		got, err := Records(filepath.Dir(path))
		if err != nil || len(got) != c.want {
			t.Errorf("%s: %d records, %v", name, len(got), err)
		}
		for done := range 5 {
			last := Record{Round: done - 1, Seconds: 9}
			j, err := OpenJournal(path, done, last, unsettled)
			if done > c.want+1 {
				want := fmt.Sprintf("cannot resume: %s: it has %d readable rounds, the checkpoint has %d; restore the "+
					"file or start again in another folder", path, c.want, done)
				if err == nil || err.Error() != want {
					t.Errorf("%s: %v, want %s", name, err, want)
				}
				continue
			}
			if err != nil || len(j.Records) != done || done > 0 && j.Records[done-1].Seconds != 9 {
				t.Errorf("%s, %d rounds: %+v, %v", name, done, j, err)
			}
			if b, _ := os.ReadFile(path); strings.Count(string(b), "\n") != done {
				t.Errorf("%s, %d rounds: the file is %s", name, done, b)
			}
			filetest.Write(t, path, c.text)
		}
	}
	filetest.Write(t, path, `{"format":9,"round":0}`)
	_, err = Records(filepath.Dir(path))
	goldentest.WantError(t, err, path+": it has format 9")
	if _, err := Records(t.TempDir()); !os.IsNotExist(err) {
		t.Error(err)
	}
	if _, err := OpenJournal(filepath.Dir(path), 0, Record{}, nil); err == nil {
		t.Error("a folder is a journal")
	}
	if err := (&Journal{path: filepath.Dir(path)}).Add(Record{}); err == nil {
		t.Error("a folder is a journal")
	}
	b, err := json.Marshal(j.Records[2])
	if err != nil || string(b)+"\n" != lines[2] || !reflect.DeepEqual(j.Records[0], Record{}) {
		t.Errorf("%s, %v", b, err)
	}
}
