package engine_test

import (
	"testing"

	"promptfed/federation/engine"
)

func TestTermsDiffer(t *testing.T) {
	server := toy(t)
	server.Exams = []engine.Exam{{Name: "new"}}
	if err := server.Terms().Differs(server.Terms()); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*engine.Experiment){
		"method":             func(e *engine.Experiment) { e.MethodName = "other" },
		"options":            func(e *engine.Experiment) { e.Options = `{"tokens":4}` },
		"seed":               func(e *engine.Experiment) { e.Plan.Seed++ },
		"training":           func(e *engine.Experiment) { e.Training.Optim.LR = 0.2 },
		"classes":            func(e *engine.Experiment) { e.Classes = append([]string{"more"}, e.Classes...) },
		"template":           func(e *engine.Experiment) { e.Template = "{}" },
		"exams":              func(e *engine.Experiment) { e.Exams = nil },
		"secure aggregation": func(e *engine.Experiment) { e.Secure = "on" },
	} {
		e := toy(t)
		e.Exams = server.Exams
		change(e)
		says(t, server.Terms().Differs(e.Terms()), what+": the server has")
	}
}
