package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/metrics"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment/inference"
	"promptfed/federation/methodtest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
)

// withValidation returns the toy with validation data for all clients but one, at a learning rate at which the best
// round is not the last.
func withValidation(t testing.TB) *spec.Experiment {
	e := toy(t)
	e.Plan.Rounds, e.Training.Optim.LR = 8, 0.4
	for i, c := range e.Clients {
		if i != 2 {
			c.Val = methodtest.Rows(700+i, 9, c.Backbone.Task().Dim, len(e.Classes))
		}
	}
	e.Evaluate = record.TestPlan{Validate: true, BestVal: true}
	return e
}

func samePrompts(t *testing.T, what string, got, want *engine.Result) {
	t.Helper()
	if len(got.Prompts) != len(want.Prompts) {
		t.Errorf("%s: %d tensors, want %d", what, len(got.Prompts), len(want.Prompts))
	}
	for name, v := range want.Prompts {
		if g := got.Prompts[name]; g == nil || !slices.Equal(g.Data, v.Data) {
			t.Errorf("%s: %s differs", what, name)
		}
	}
}

// TestBestRoundIsLeft: the files of a run are those of a run that ended after the round with the best validation
// accuracy. Predict on the validation data has the validation accuracy of that round. Validation changes nothing in
// training.
func TestBestRoundIsLeft(t *testing.T) {
	e := withValidation(t)
	r := mustRun(t, e, engine.Settings{Encode: true})
	at := r.Summary.AtBestVal
	if at == nil || at.Round == e.Plan.Rounds-1 || r.Summary.Selected != at.Round || r.Summary.Select != "best-val" {
		t.Fatalf("selected %d, best %+v; the toy is no test of this", r.Summary.Selected, at)
	}
	short := withValidation(t)
	short.Plan.Rounds, short.Evaluate = at.Round+1, record.TestPlan{}
	ended := mustRun(t, short, engine.Settings{})
	samePrompts(t, "the best round", r, ended)
	if ended.Summary.AtBestVal != nil || ended.Records[0].Validation != nil {
		t.Error("nobody asked for validation")
	}
	if ended.Summary.Last != at.Accuracy || !reflect.DeepEqual(ended.Summary.Evaluations, r.Summary.Evaluations) {
		t.Errorf("the run that ended there has %g, the summary %+v", ended.Summary.Last, *at)
	}
	v := r.Records[at.Round].Validation
	if !slices.Equal(v.Clients, []int{0, 1, 3}) || !slices.Equal(v.Examples, []int{9, 9, 9}) {
		t.Errorf("validation data of clients %v, %v examples", v.Clients, v.Examples)
	}
	w := client.NewWorker(e, client.Settings{})
	defer w.Close()
	for i, id := range v.Clients {
		c := e.Clients[id]
		scores, err := inference.Predict(context.Background(), w, c, len(e.Clients), r.Prompts, c.Val)
		goldentest.NoError(t, err)
		right := 0
		for k, y := range c.Val.Labels() {
			row := scores.Row(k).Data
			if slices.Index(row, slices.Max(row)) == int(y) {
				right++
			}
		}
		if got := v.Personal.PerClient[i]; got != float64(right)/9 {
			t.Errorf("client %d: validation accuracy %g, of 9 images %d are right", id, got, right)
		}
	}
}

// TestBestRoundResumed: a run that is interrupted after every round, or cannot write its line, writes the same bytes
// and the same summary as an uninterrupted run.
func TestBestRoundResumed(t *testing.T) {
	whole, dir := t.TempDir(), t.TempDir()
	mustRun(t, withValidation(t), engine.Settings{Dir: whole})
	lines, aside := filepath.Join(dir, record.RoundsFile), filepath.Join(dir, "aside")
	for i := range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		began := 0
		_, err := engine.Run(ctx, withValidation(t), engine.Settings{Dir: dir, Resume: true,
			OnTurn: func(message.Instruction,
				int) {
				if began++; began == 14 { // in the middle of the second round of this process
					cancel()
				} else if began == 1 && i%2 == 1 {
					os.Rename(lines, aside)
					os.Mkdir(lines, 0o700)
				}
			}})
		cancel()
		if i%2 == 1 && began > 0 {
			os.Remove(lines)
			os.Rename(aside, lines)
		}
		if err == nil {
			break
		}
	}
	if prompts(t, dir) != prompts(t, whole) {
		t.Error("the prompts differ")
	}
	if a, b := summary(t, dir), summary(t, whole); !bytes.Equal(a, b) {
		t.Errorf("the summary is\n%s\nwant\n%s", a, b)
	}
	left, err := filepath.Glob(filepath.Join(dir, record.CheckFolder, "best-*"))
	if err != nil || len(left) != 1 {
		t.Errorf("what is kept: %v %v", left, err)
	}
	kept := filetest.Read(t, left[0])
	kept[len(kept)-1] ^= 1 // of a number, with which the file is as readable as before
	filetest.Write(t, left[0], kept)
	refused(t, withValidation(t), engine.Settings{Dir: dir, Resume: true}, "cannot resume", left[0], "damaged")
	goldentest.NoError(t, os.Remove(left[0]))
	refused(t, withValidation(t), engine.Settings{Dir: dir, Resume: true}, "cannot resume", "were not kept",
		"eval.select")
}

// TestExtended: results of a finished run stay until its first further round is done. In the end the records and the
// prompts are those of a run that never stopped.
func TestExtended(t *testing.T) {
	e := toy(t)
	e.Plan.Rounds, e.Plan.New, e.Plan.Trainers, e.Plan.Attackers = 1, []int{1}, []int{0, 2, 3}, []int{3}
	e.Evaluate = record.TestPlan{NewSteps: []int{0}, Confusion: true, SetsEvery: 2}
	for _, name := range []string{metrics.BaseSet, metrics.NewSet, metrics.TriggeredSet} {
		e.EvaluationSets = append(e.EvaluationSets, spec.EvaluationSet{Name: name, Test: setRows(len(e.Classes))})
	}
	dir, whole := t.TempDir(), t.TempDir()
	got := mustRun(t, e, engine.Settings{Dir: dir})
	for range 2 {
		e.Plan.Rounds++
		got = mustRun(t, e, engine.Settings{Dir: dir, Resume: true, OnRound: func(r record.Record) {
			for _, name := range []string{record.SummaryFile, record.PromptsFile} {
				if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != (r.Round+1 < e.Plan.Rounds) {
					t.Errorf("after round %d: %s: %v", r.Round, name, err)
				}
			}
		}})
	}
	want := mustRun(t, e, engine.Settings{Dir: whole})
	for i := range want.Records {
		got.Records[i].Seconds, got.Records[i].Phases = want.Records[i].Seconds, want.Records[i].Phases
	}
	a, _ := json.Marshal(got.Records)
	if b, err := json.Marshal(want.Records); err != nil || !bytes.Equal(a, b) || prompts(t, dir) != prompts(t, whole) {
		t.Errorf("extended %s, want %s, %v", a, b, err)
	}
}

// summary returns summary.json without times.
func summary(t *testing.T, dir string) []byte {
	t.Helper()
	var s record.Summary
	goldentest.ReadJSON(t, filepath.Join(dir, record.SummaryFile), &s)
	s.Seconds = 0
	b, _ := json.MarshalIndent(s, "", " ")
	return b
}

// TestStops: with a patience of one tested round the run ends after the first tested round that is not better. It
// writes all results, and a resumed run does not continue.
func TestStops(t *testing.T) {
	e := withValidation(t)
	e.Evaluate.BestVal = false
	all := mustRun(t, e, engine.Settings{})
	want := 1
	validated := func(round int) float64 { return all.Records[round].Validation.Personal.Accuracy() }
	for want < len(all.Records) && validated(want) > validated(want-1) {
		want++
	}
	if want+1 >= len(all.Records) {
		t.Fatal("the toy gets better all the time, which is no test")
	}
	dir := t.TempDir()
	for _, again := range []bool{false, true} {
		e := withValidation(t)
		e.Evaluate = record.TestPlan{Validate: true, Patience: 1, Confusion: true}
		e.EvaluationSets = []spec.EvaluationSet{{Name: "x", Test: setRows(len(e.Classes))}}
		r := mustRun(t, e, engine.Settings{Dir: dir, Resume: again})
		if len(r.Records) != want+1 || !strings.Contains(r.Summary.Stopped, "train.patience") ||
			r.Summary.EvaluationSets["x"].Examples != 10 {
			t.Errorf("%d rounds, want %d; %q, %v", len(r.Records), want+1, r.Summary.Stopped, r.Summary.EvaluationSets)
		}
		if c := confusionOf(t, dir); c.Round != want || c.Clients != 4 {
			t.Errorf("the confusion matrix is of round %d and %d clients", c.Round, c.Clients)
		}
	}
}

// TestNoValidation: without validation data no round can be selected by it, in this process and with remote clients.
func TestNoValidation(t *testing.T) {
	for _, how := range []record.TestPlan{{Validate: true, BestVal: true}, {Validate: true, Patience: 3}} {
		e := toy(t)
		e.Evaluate = how
		refused(t, e, engine.Settings{}, "no client has validation data", "data.val_share")
		refused(t, e, engine.Settings{Remote: newRemoteClients(e)}, "no client has validation data",
			"data.split: pooled")
	}
}

func confusionOf(t *testing.T, dir string) *record.Confusion {
	t.Helper()
	c := &record.Confusion{}
	goldentest.ReadJSON(t, filepath.Join(dir, record.ConfusionFile), c)
	return c
}

// TestConfusion: the diagonal counts the correct predictions, and the rows count the labels of all test data, in one
// process, through messages and with remote clients. A client that withholds the matrix sends none.
func TestConfusion(t *testing.T) {
	with := func(tell bool) *spec.Experiment {
		e := toy(t)
		e.Evaluate.Confusion = tell
		return e
	}
	r := mustRun(t, with(true), engine.Settings{Encode: true})
	counts := map[int64]int64{}
	for _, c := range with(true).Clients {
		for _, y := range c.Test.Labels() {
			counts[y]++
		}
	}
	for what, m := range map[string]*metrics.Matrix{"global": r.Confusion.Global,
		"personal": r.Confusion.Personal} {
		if m == nil {
			continue
		}
		right, rows := map[int64]int64{}, map[int64]int64{}
		sum, hit := 0.0, 0.0
		for _, k := range m.Counts {
			rows[k[0]] += k[2]
			sum += float64(k[2])
			if k[0] == k[1] {
				right[k[0]] = k[2]
				hit += float64(k[2])
			}
		}
		e := r.Summary.Evaluations.Personal
		if what == "global" {
			e = r.Summary.Evaluations.Global
		}
		if !reflect.DeepEqual(rows, counts) || math.Abs(hit/sum-e.Values[metrics.Weighted]) > 1e-12 {
			t.Errorf("%s: rows %v, want %v; %g right, want %g", what, rows, counts, hit/sum, e.Values[metrics.Weighted])
		}
		for y, rate := range m.PerClass {
			if n := counts[int64(y)]; (rate == nil) != (n == 0) || rate != nil &&
				*rate != float64(right[int64(y)])/float64(n) {
				t.Errorf("%s: class %d has %v of %d", what, y, rate, n)
			}
		}
	}
	if r.Confusion.Personal == nil || !slices.Equal(r.Confusion.Classes, methodtest.Classes) {
		t.Errorf("%+v", r.Confusion)
	}
	e := with(true)
	far := mustRun(t, e, engine.Settings{Remote: newRemoteClients(e)})
	if !reflect.DeepEqual(far.Confusion, r.Confusion) {
		t.Errorf("elsewhere %+v, here %+v", far.Confusion, r.Confusion)
	}
	silent := with(false)
	if far := mustRun(t, e, engine.Settings{Remote: newRemoteClients(silent)}); far.Confusion != nil {
		t.Errorf("clients that do not want to tell told %+v", far.Confusion)
	}
	if mustRun(t, silent, engine.Settings{}).Confusion != nil {
		t.Error("nobody asked")
	}
}

// TestNewClients: client 1 never trains. Its accuracy after some steps is that of the method's local training from the
// last shared parameters, which this test repeats. It leaves no parameters, and the others train as without it.
func TestNewClients(t *testing.T) {
	with := func(steps ...int) *spec.Experiment {
		e := toy(t)
		e.Plan.New, e.Plan.Trainers, e.Evaluate.NewSteps = []int{1}, []int{0, 2, 3}, steps
		e.Training.Schedule.Kind, e.Training.Schedule.TMax = "cosine", 3
		return e
	}
	e := with(0, 5)
	r := mustRun(t, e, engine.Settings{Encode: true})
	samePrompts(t, "without the test of new clients", mustRun(t, with(), engine.Settings{}), r)
	if len(r.Prompts.WithoutPrefix("client/1")) > 0 {
		t.Error("the new client left something")
	}
	last := r.Records[len(r.Records)-1]
	if len(last.Evaluation.PerClient) != 3 || last.Answered != nil || last.Unanswered != nil || last.Untrained != 0 ||
		r.Records[0].NewClients != nil {
		t.Errorf("%+v", last)
	}
	other := with()
	other.Training.Epochs, other.Training.Overrides = 5, []spec.Overrides{{Steps: 5}}
	other.Training.Schedule.Kind = ""
	w := client.NewWorker(other, client.Settings{})
	defer w.Close()
	o := message.Instruction{Kind: message.Train, Round: e.Plan.Rounds - 1, Clients: []int{1}, Total: 4,
		Shared: r.Prompts.WithoutPrefix("shared"), Broadcast: r.Prompts.WithoutPrefix("down/1")}
	trained, after, err := w.Train(context.Background(), e.Clients[1], o, message.ClientState{})
	if err != nil || trained.Stats.Steps != 5 {
		t.Fatal(trained.Stats, err)
	}
	o.Kind = message.Test
	for steps, state := range map[string]message.ClientState{"0": {}, "5": after} {
		s, err := w.Test(context.Background(), e.Clients[1], o, state)
		goldentest.NoError(t, err)
		want := float64(s.Personal["correct"][0]) / float64(s.Examples)
		if got := last.NewClients[steps]; got.Evaluation == nil || got.Evaluation.Accuracy() != want ||
			got.Examples != s.Examples || got.Answered != nil {
			t.Errorf("after %s steps %+v, want %g", steps, got, want)
		}
	}
	far := mustRun(t, e, engine.Settings{Remote: newRemoteClients(e)})
	if a, _ := json.Marshal(far.Summary.NewClients); !strings.Contains(string(a), `"5":{`) ||
		!reflect.DeepEqual(far.Summary.NewClients, r.Summary.NewClients) {
		t.Errorf("elsewhere %s, here %+v", a, r.Summary.NewClients)
	}
}

// TestZeroShot: hand-written prompts have the accuracy of the method zeroshot; labels shifted by one do not.
func TestZeroShot(t *testing.T) {
	m := buildMethod(t, "zeroshot", nil, nil)
	e := withMethod(m)
	e.Plan.Rounds, e.Evaluate.ZeroShot = 1, true
	var heard []string
	r := mustRun(t, e, engine.Settings{OnWarning: func(line string) { heard = append(heard, line) }})
	right, n := map[string]float64{}, map[string]float64{}
	for i, c := range e.Clients {
		right[c.Backbone.Name()] += math.Round(r.Summary.Evaluations.Global.PerClient[i] * float64(c.Test.Len()))
		n[c.Backbone.Name()] += float64(c.Test.Len())
	}
	if len(r.Summary.ZeroShot) != 2 || !slices.Equal(heard, r.Summary.Warnings) {
		t.Fatalf("%+v, %q, %q", r.Summary.ZeroShot, heard, r.Summary.Warnings)
	}
	warned := 0
	for _, z := range r.Summary.ZeroShot {
		if z.Accuracy != right[z.Backbone]/n[z.Backbone] {
			t.Errorf("%+v, and the method zeroshot has %g of %g right", z, right[z.Backbone], n[z.Backbone])
		}
		if z.Accuracy <= z.Chance && z.Chance < 1 {
			warned++
		}
		if z.Chance < 1/float64(len(e.Classes)) {
			t.Errorf("chance is %g with %d classes", z.Chance, len(e.Classes))
		}
	}
	// the accuracy of the method zeroshot is a mean over clients, on any backbones
	if mean, ok := r.Summary.ZeroShotMean(); !ok || math.Abs(mean-r.Summary.Evaluations.Global.Accuracy()) > 1e-12 {
		t.Errorf("mean %v, and the method zeroshot has %v", mean, r.Summary.Evaluations.Global.Accuracy())
	}
	if warned != len(heard) {
		t.Errorf("%d of %+v are no better than chance, and %q was heard", warned, r.Summary.ZeroShot, heard)
	}
	for _, line := range heard {
		if !strings.Contains(line, "not above chance") || strings.Contains(line, "\n") {
			t.Errorf("%q", line)
		}
	}
	list := []record.ZeroShot{{Backbone: "a", Accuracy: 1, Classes: 4, Chance: 1}, {Backbone: "b", Accuracy: .5,
		Classes: 4, Chance: .5}}
	if got := record.ZeroShotWarnings(list); len(got) != 1 || !strings.Contains(got[0], "accuracy of b") {
		t.Errorf("test images of one class, which are all right, and a backbone at chance: %q", got)
	}
	e = toy(t)
	e.Template, e.Evaluate.ZeroShot = "no place for the class", true
	if _, ok := (record.Summary{ZeroShot: []record.ZeroShot{{Accuracy: 1}}}).ZeroShotMean(); ok {
		t.Error("the mean over clients of an older summary is known")
	}
	if r := mustRun(t, e, engine.Settings{}); len(r.Summary.Warnings) != 2 || !strings.Contains(r.Summary.Warnings[0],
		"could not be computed") {
		t.Errorf("%q", r.Summary.Warnings)
	}
}
