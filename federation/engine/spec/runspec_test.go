package spec_test

import (
	"strings"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
)

// experiment returns an experiment that a server and its clients may agree on.
func experiment() *spec.Experiment {
	return &spec.Experiment{Name: "toy", MethodName: "toy", Classes: methodtest.Classes, Template: "a {}.",
		Clients:  methodtest.Clients(9, 5, 6, 3),
		Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}},
		Plan:     spec.Plan{Rounds: 3, TestEvery: 1, Seed: 5}}
}

func TestRunSpecsDiffer(t *testing.T) {
	server := experiment()
	server.EvaluationSets = []spec.EvaluationSet{{Name: "new"}}
	if err := server.RunSpec().Mismatch(server.RunSpec()); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*spec.Experiment){
		"method":             func(e *spec.Experiment) { e.MethodName = "other" },
		"options":            func(e *spec.Experiment) { e.Options = `{"tokens":4}` },
		"seed":               func(e *spec.Experiment) { e.Plan.Seed++ },
		"training":           func(e *spec.Experiment) { e.Training.Optim.LR = 0.2 },
		"classes":            func(e *spec.Experiment) { e.Classes = append([]string{"more"}, e.Classes...) },
		"template":           func(e *spec.Experiment) { e.Template = "{}" },
		"evaluation sets":    func(e *spec.Experiment) { e.EvaluationSets = nil },
		"secure aggregation": func(e *spec.Experiment) { e.Secure = "on" },
	} {
		e := experiment()
		e.EvaluationSets = server.EvaluationSets
		change(e)
		if err := server.RunSpec().Mismatch(e.RunSpec()); err == nil || !strings.Contains(err.Error(),
			what+": the server has") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
