package engine_test

import (
	"context"
	"math"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment/inference"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort"
)

// setRows returns ten examples of some number of classes for each of the toy backbones.
func setRows(classes int) map[string]*spec.Features {
	return map[string]*spec.Features{"toy-a": methodtest.Rows(901, 10, 5, classes), "toy-b": methodtest.Rows(902, 10, 7,
		classes)}
}

// expected scores an evaluation set with Predict, from the files of the run, and averages over clients.
func expected(t *testing.T, e spec.Experiment, x spec.EvaluationSet, r *engine.Result) float64 {
	t.Helper()
	if len(x.Classes) > 0 {
		e.Classes = x.Classes
	}
	e.EvaluationSets = nil
	w := client.NewWorker(&e, client.Settings{Session: ort.Options{}})
	defer w.Close()
	mean := 0.0
	for _, c := range e.Clients {
		rows := x.Test[c.Backbone.Name()]
		scores, err := inference.Predict(context.Background(), w, c, len(e.Clients), r.Prompts, rows)
		goldentest.NoError(t, err)
		for i, y := range rows.Labels() {
			best := 0
			for j, v := range scores.Row(i).Data {
				if v > scores.Row(i).Data[best] {
					best = j
				}
			}
			if int64(best) == y {
				mean += 1 / float64(rows.Len()*len(e.Clients))
			}
		}
	}
	return mean
}

// Only a client's own test data is tested with a fine-tuned copy.
func TestEvaluationSets(t *testing.T) {
	e := toy(t)
	e.Training.FineTune = 1
	e.EvaluationSets = []spec.EvaluationSet{{Name: "same", Test: setRows(len(e.Classes))},
		{Name: "new", Classes: []string{"yes", "no"}, Test: setRows(2)}}
	r := mustRun(t, e, engine.Settings{Encode: true})
	for _, rec := range r.Records[:len(r.Records)-1] {
		if rec.EvaluationSets != nil {
			t.Errorf("round %d has evaluation sets already", rec.Round)
		}
	}
	for _, x := range e.EvaluationSets {
		got, want := r.Summary.EvaluationSets[x.Name], expected(t, *e, x, r)
		if math.Abs(got.Evaluation.Accuracy()-want) > 1e-12 || got.Examples != 10 ||
			got.Evaluation.Accuracy() != *got.Personal {
			t.Errorf("evaluation set %s gave %+v, its accuracy should be %g", x.Name, got, want)
		}
	}
	// Evaluation sets change nothing else.
	plain := mustRun(t, toy(t), engine.Settings{})
	for name, v := range plain.Prompts {
		for i := range v.Data {
			if r.Prompts[name].Data[i] != v.Data[i] {
				t.Fatalf("%s differs from that of a run without evaluation sets", name)
			}
		}
	}
}

func TestEvaluationSetsRefused(t *testing.T) {
	one := func(x spec.EvaluationSet) *spec.Experiment {
		e := toy(t)
		e.EvaluationSets = []spec.EvaluationSet{x}
		return e
	}
	refused(t, one(spec.EvaluationSet{Test: setRows(2)}), engine.Settings{}, "name", "empty")
	refused(t, one(spec.EvaluationSet{Name: "x", Test: map[string]*spec.Features{"toy-a": setRows(2)["toy-a"]}}),
		engine.Settings{}, "evaluation set x", "toy-b")
	refused(t, one(spec.EvaluationSet{Name: "x", Classes: []string{"a", "b"}, Test: setRows(3)}), engine.Settings{},
		"evaluation set x",
		"label 2", "2 classes")
	e := withMethod(buildMethod(t, "pfedprompt", nil, nil))
	e.EvaluationSets = []spec.EvaluationSet{{Name: "new", Classes: []string{"yes", "no"}, Test: setRows(2)}}
	refused(t, e, engine.Settings{}, "evaluation set new", "own examples")
	e.Method = buildMethod(t, "coop", nil, map[string]any{"class_specific": true, "tokens": 2})
	e.EvaluationSets[0].Classes = []string{"as", "many", "other", "classes"} // four, like the new half of eight classes
	refused(t, e, engine.Settings{}, "evaluation set new",
		"learns ctx [4 2 6] for 4 classes, which cannot be used for other")
}
