package record

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// statisticsOf returns the statistics of a client with so many correct predictions, with the fields that these tests
// read.
func statisticsOf(correct, f1 float64) metrics.Statistics {
	return metrics.Statistics{"correct": {correct}, "f1": {f1}, "own_correct": {0}}
}

// bothEvaluations has both evaluations.
var bothEvaluations = Evaluable{Global: true, Personal: true}

// TestScore: three clients have 1 of 2, 3 of 4 and 4 of 4 correct with their own parameters, and 0, 1 and 2 with the
// server's. Domains east (0.5, 1) and west (0.75) have means 0.75 and 0.75. The standard deviations of (0.5, 0.75, 1)
// and (0, 0.25, 0.5) are those of -1/4, 0, 1/4.
func TestScore(t *testing.T) {
	var replies []message.Reply
	for i, s := range []message.Scores{
		{Examples: 2, Global: statisticsOf(0, 0.1), Personal: statisticsOf(1, 0.3)},
		{Examples: 4, Global: statisticsOf(1, 0.2), Personal: statisticsOf(3, 0.6), Untrained: true},
		{Examples: 4, Global: statisticsOf(2, 0.3), Personal: statisticsOf(4, 0.9)}} {
		replies = append(replies, message.Reply{Client: i, Scores: s})
	}
	infos := []method.ClientInfo{{Domain: "east"}, {Domain: "west"}, {Domain: "east"}}
	r := Record{}
	r.Score(bothEvaluations, method.PersonalView, replies, tensor.Indices(len(infos)), infos)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	near("accuracy", r.Evaluation.Accuracy(), 0.75)
	near("std", r.Evaluation.Values[metrics.ClientStd], math.Sqrt(0.125/3))
	near("weighted", r.Evaluation.Values[metrics.Weighted], 0.8)
	near("global", *r.Global, 0.25)
	near("personal", *r.Personal, 0.75)
	near("worst", r.Evaluation.Values[metrics.Worst], 0.5)
	near("f1", r.Evaluation.Values[metrics.F1], 0.6)
	near("domain mean", r.Evaluation.Values[metrics.DomainMean], 0.75)
	near("domain std", r.Evaluation.Values[metrics.DomainStd], 0)
	near("east", r.Evaluation.PerDomain["east"], 0.75)
	if r.Answered != nil || r.Unanswered != nil || r.Untrained != 1 || r.View != "personal" ||
		r.Evaluation != r.Evaluations.Personal {
		t.Errorf("all answered, one was never trained, and the record has %+v", r)
	}
	g := r.Evaluations.Global
	near("global std", g.Values[metrics.ClientStd], math.Sqrt(0.125/3))
	near("global weighted", g.Values[metrics.Weighted], 0.3)
	near("global f1", g.Values[metrics.F1], 0.2)
	near("global worst", g.Values[metrics.Worst], 0)
	near("global east", g.PerDomain["east"], 0.25)

	some := Record{}
	some.Score(bothEvaluations, method.PersonalView, replies[1:], tensor.Indices(3), make([]method.ClientInfo, 3))
	if len(some.Evaluation.PerClient) != 2 || !slices.Equal(some.Answered, []int{1, 2}) ||
		!slices.Equal(some.Unanswered, []int{0}) {
		t.Errorf("clients 1 and 2 answered: %v of %v, not %v", some.Evaluation.PerClient, some.Answered,
			some.Unanswered)
	}
	x := SummariseSet(bothEvaluations, method.GlobalView, replies, tensor.Indices(len(infos)), infos)
	near("exam", x.Evaluation.Accuracy(), 0.25)
	near("evaluation set f1", x.Evaluation.Values[metrics.F1], 0.2)
	if x.Examples != 4 {
		t.Errorf("%d examples", x.Examples)
	}
}

// TestScoreOfOne: if a method has only one of the two evaluations, the record, the summary and their lines have no
// trace of the other. With the other as the headline there is no headline. A client's reply is refused if it has an
// evaluation that does not exist, or lacks one that does.
func TestScoreOfOne(t *testing.T) {
	replies := []message.Reply{{Client: 0, Scores: message.Scores{Examples: 4, Personal: statisticsOf(3, 0.5)}},
		{Client: 1, Scores: message.Scores{Examples: 4, Global: statisticsOf(4, 1)}}}
	has, infos := Evaluable{Personal: true}, make([]method.ClientInfo, 2)
	const personal = `"accuracy":0.75,"accuracy_weighted":0.75,"f1":0.5,"worst":0.75,"worst10":0.75,"accuracy_std":0,` +
		`"own_classes":0,"per_client":[0.75]`
	const first = `{"format":2,"round":0,"tested":true,"view":`
	const rest = `"accuracy_personal":0.75,"evaluations":{"personal":{` + personal + `}},"test_sizes":[4],` +
		`"answered":[0],"unanswered":[1],"clients":null,"lr":0,"bytes_up":0,"bytes_down":0,"seconds":0`
	for view, want := range map[method.View]string{
		method.PersonalView: first + `"personal",` + rest + `,` + personal + `}`,
		method.GlobalView:   first + `"global",` + rest + `}`,
	} {
		r := Record{}
		r.Score(has, view, replies, tensor.Indices(len(infos)), infos)
		line, err := json.Marshal(r)
		if err != nil || string(line) != want {
			t.Errorf("%v: %v, the record is\n%s\nwant\n%s", view, err, line, want)
		}
		s := Summarise([]Record{r}, view)
		if s.Global != nil || *s.Personal != .75 || (s.Headline == nil) != (view == method.GlobalView) ||
			s.View != view.String() {
			t.Errorf("%v: %+v", view, s)
		}
		if len(s.Unanswered) != 1 || s.Unanswered[0].Round != 0 || !slices.Equal(s.Unanswered[0].Clients, []int{1}) {
			t.Errorf("%v: client 1 did not answer, and the summary says %+v", view, s.Unanswered)
		}
	}
}
