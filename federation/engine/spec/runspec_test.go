package spec_test

import (
	"strings"
	"testing"

	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
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
		"method":                               func(e *spec.Experiment) { e.MethodName = "other" },
		"options":                              func(e *spec.Experiment) { e.Options = `{"tokens":4}` },
		"seed: the server has 5, the client 6": func(e *spec.Experiment) { e.Plan.Seed++ },
		"training":                             func(e *spec.Experiment) { e.Training.Optim.LR = 0.2 },
		"classes":                              func(e *spec.Experiment) { e.Classes = e.Classes[1:] },
		"template":                             func(e *spec.Experiment) { e.Template = "{}" },
		"evaluation sets":                      func(e *spec.Experiment) { e.EvaluationSets = nil },
		"secure aggregation":                   func(e *spec.Experiment) { e.Secure = "on" },
	} {
		e := experiment()
		e.EvaluationSets = server.EvaluationSets
		change(e)
		goldentest.WantErrorOf(t, what, server.RunSpec().Mismatch(e.RunSpec()), what, "the server has")
	}
}

// Lists differ by what each side has alone, or by their order from the first difference on.
func TestListsDiffer(t *testing.T) {
	server := spec.RunSpec{Classes: []string{"cat", "dog", "owl"}}
	for want, classes := range map[string][]string{
		`classes: client 0 has ["dog"], which client 2 lacks; client 2 has ["fox" "elk"], which client 0 lacks`: {"fox",
			"owl", "cat", "elk"},
		`classes: client 2 has ["elk"], which client 0 lacks`:                          {"cat", "dog", "owl", "elk"},
		`classes: client 0 has ["dog" "owl"] from number 2 on, client 2 ["owl" "dog"]`: {"cat", "owl", "dog"},
		`classes: client 0 has [] from number 4 on, client 2 ["cat"]`:                  {"cat", "dog", "owl", "cat"},
	} {
		err := server.MismatchOf("client 0", spec.RunSpec{Classes: classes}, "client 2")
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A run has at most 1024 evaluation sets. The text of a class, which is its name, the template, and the name in its
// place, has at most 1024 bytes: 511 + 2 + 511.
func TestSizesOfRunSpecs(t *testing.T) {
	for _, c := range []struct {
		sets, name int
		want       []string // nil: allowed
	}{
		{1024, 511, nil}, {1025, 1, []string{"1025 evaluation sets"}}, {0, 512, []string{"has 1026 bytes"}},
	} {
		err := spec.RunSpec{Classes: []string{strings.Repeat("a", c.name)}, Template: "{}",
			EvaluationSets: make([]string, c.sets)}.CheckSizes()
		if c.want != nil {
			goldentest.WantError(t, err, c.want...)
		} else if err != nil {
			t.Error(err)
		}
	}
}
