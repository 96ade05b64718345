package engine_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment/inference"
	"promptfed/federation/method"
	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
)

// TestView: eval.view chooses the headline of records and summary among the measured evaluations, and changes nothing
// else. If the method lacks that evaluation, there is no headline.
func TestView(t *testing.T) {
	run := func(name, view string) *engine.Result {
		t.Helper()
		m := buildMethod(t, name, nil, nil)
		e := withMethod(m)
		e.Plan.Rounds, e.Plan.View = 2, view
		return mustRun(t, e, engine.Settings{})
	}
	for _, name := range []string{"promptfl", "fedappr", "coop"} {
		own := run(name, "")
		for _, view := range record.Views() {
			r := run(name, view)
			want := view
			if view == record.MethodView { // FedAPPR's algorithm returns the clients' prompts, CoOp has no other
				want = map[string]string{"promptfl": "global", "fedappr": "personal", "coop": "personal"}[name]
			}
			kind := method.GlobalView
			if want == "personal" {
				kind = method.PersonalView
			}
			for i, rec := range r.Records {
				a, _ := json.Marshal(rec.Evaluations)
				b, _ := json.Marshal(own.Records[i].Evaluations)
				if rec.View != want || rec.Evaluation != rec.Evaluations.Of(kind) || string(a) != string(b) {
					t.Errorf("%s, view %s, round %d: %+v", name, view, i, rec)
				}
			}
			s := r.Summary
			if s.View != want || s.MethodView != own.Summary.View || (s.Headline == nil) != (name == "coop" &&
				want == "global") {
				t.Errorf("%s, view %s: the summary is of %s, the method's own is %s, %+v", name, view, s.View,
					s.MethodView, s.Headline)
			}
			if e := s.Evaluations.Of(kind); e != nil && (s.Last != e.Accuracy() ||
				s.Evaluation.Values[metrics.F1] != e.Values[metrics.F1] ||
				s.Evaluation.Values[metrics.Worst] != e.Values[metrics.Worst]) {
				t.Errorf("%s, view %s: %+v of %+v", name, view, s.Headline, e)
			}
		}
	}
}

// TestEvaluationsAgainstPredict computes both evaluations of PromptFL's last round from the files of the run: class
// scores with the average, and with each client's prompt after its training instead of the average.
func TestEvaluationsAgainstPredict(t *testing.T) {
	m := buildMethod(t, "promptfl", nil, nil)
	e := withMethod(m)
	e.Training.Optim.LR = 5 // so that the two differ
	r := mustRun(t, e, engine.Settings{})
	w := client.NewWorker(e, client.Settings{Session: ort.Options{}})
	defer w.Close()
	last := r.Records[len(r.Records)-1]
	differ := false
	for kind, got := range map[method.View]*metrics.Evaluation{method.GlobalView: last.Evaluations.Global,
		method.PersonalView: last.Evaluations.Personal} {
		var per []float64
		for i, c := range e.Clients {
			prompts := r.Prompts.Clone()
			if kind == method.PersonalView {
				for name, v := range prompts.WithoutPrefix("client/" + string(rune('0'+i)) + "/own") {
					differ = differ || !slices.Equal(v.Data, prompts["shared/"+name].Data)
					prompts["shared/"+name] = v
				}
			}
			scores, err := inference.Predict(context.Background(), w, c, len(e.Clients), prompts, c.Test)
			goldentest.NoError(t, err)
			right := 0.
			for k, y := range c.Test.Labels() {
				row := scores.Row(k).Data
				if slices.Index(row, slices.Max(row)) == int(y) {
					right++
				}
			}
			per = append(per, right/float64(c.Test.Len()))
		}
		if !slices.Equal(per, got.PerClient) {
			t.Errorf("%v: %v, want %v", kind, got.PerClient, per)
		}
		for i, c := range e.Clients { // the parameters beside an exported classifier
			if a, ok := inference.Accuracy(w, c, len(e.Clients), last); kind == method.GlobalView &&
				(!ok || math.Abs(a-per[i]) > 1e-12) {
				t.Errorf("client %d: %v, want %v", i, a, per[i])
			}
		}
	}
	if !differ {
		t.Error("the clients' prompts are the average; this is no test of what is tested")
	}
}

// losesReplies loses the answer of client 2 to the test of round 0, and those of clients 1 and 3 to the evaluation set.
type losesReplies struct{ message.Cohort }

func (f losesReplies) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies, err := f.Cohort.Run(ctx, o)
	return slices.DeleteFunc(replies, func(r message.Reply) bool {
		return o.Kind == message.Test && (o.Set == "" && o.Round == 0 && r.Client == 2 || o.Set != "" &&
			r.Client%2 == 1)
	}), err
}

// TestUnanswered: a mean over fewer clients than the run has is the mean of those that answered. The round's record,
// the summary and a line for people name the missing clients.
func TestUnanswered(t *testing.T) {
	run := func(around func(message.Cohort) message.Cohort) *engine.Result {
		e := toy(t)
		e.Plan.Rounds = 2
		e.EvaluationSets = []spec.EvaluationSet{{Name: "same", Test: setRows(len(e.Classes))}}
		return mustRun(t, e, engine.Settings{Wrap: around})
	}
	whole, r := run(nil), run(func(c message.Cohort) message.Cohort { return losesReplies{c} })
	if whole.Summary.Unanswered != nil || r.Records[1].Unanswered != nil {
		t.Errorf("everybody answered: %v, %v", whole.Summary.Unanswered, r.Records[1].Unanswered)
	}
	per := whole.Records[0].Evaluation.PerClient
	if want := (per[0] + per[1] + per[3]) / 3; math.Abs(r.Records[0].Evaluation.Accuracy()-want) > 1e-12 ||
		!slices.Equal(r.Records[0].Unanswered, []int{2}) {
		t.Errorf("round 0: %v over %v, want %v", r.Records[0].Evaluation.Accuracy(), r.Records[0].Answered, want)
	}
	lines := convert.Slice(r.Summary.Unanswered, record.Unanswered.String)
	if want := []string{"no answer to the test of round 1 from client 2: means are over the others",
		"no answer to evaluation set same of round 2 from clients 1, 3: means are over the " +
			"others"}; !slices.Equal(lines, want) {
		t.Errorf("the summary says %q", lines)
	}
	if x := r.Summary.EvaluationSets["same"]; !slices.Equal(x.Answered, []int{0, 2}) ||
		len(x.Evaluation.PerClient) != 2 {
		t.Errorf("%+v", x)
	}
}
