package engine_test

import (
	"testing"

	"promptfed/federation/engine/spec"
)

func TestTermsDiffer(t *testing.T) {
	server := toy(t)
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
		e := toy(t)
		e.EvaluationSets = server.EvaluationSets
		change(e)
		says(t, server.RunSpec().Mismatch(e.RunSpec()), what+": the server has")
	}
}
