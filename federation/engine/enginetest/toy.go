package enginetest

import (
	"context"
	"path/filepath"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/filetest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
)

// Toy returns an experiment with FedPHA, which has shared and private prompts, on four toy clients.
func Toy(t testing.TB) *spec.Experiment {
	t.Helper()
	return WithMethod(Build(t, "fedpha", nil, map[string]any{"global_tokens": 3, "local_tokens": []int{2, 4},
		"projector": "exact-null"}))
}

// Build returns a method with wrappers and options.
func Build(t testing.TB, name string, with []string, options map[string]any) method.Method {
	t.Helper()
	m, err := methods.Build(name, with, options)
	goldentest.NoError(t, err)
	return m
}

// WithMethod returns an experiment of three rounds on four toy clients.
func WithMethod(m method.Method) *spec.Experiment {
	return &spec.Experiment{Name: "toy", MethodName: "toy", Method: m, Classes: methodtest.Classes, Template: "a {}.",
		Clients:  methodtest.Clients(9, 5, 6, 3),
		Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}},
		Plan:     spec.Plan{Rounds: 3, TestEvery: 1, Seed: 5}}
}

// Run runs an experiment that must not fail.
func Run(t testing.TB, experiment *spec.Experiment, set engine.Settings) *engine.Result {
	t.Helper()
	r, err := engine.Run(context.Background(), experiment, set)
	goldentest.NoError(t, err)
	return r
}

// Refused runs an experiment and expects a one-line error with all the words.
func Refused(t testing.TB, experiment *spec.Experiment, set engine.Settings, words ...string) {
	t.Helper()
	_, err := engine.Run(context.Background(), experiment, set)
	goldentest.WantError(t, err, words...)
}

// Prompts returns the bytes of the prompts of a run folder.
func Prompts(t testing.TB, dir string) string {
	t.Helper()
	return string(filetest.Read(t, filepath.Join(dir, record.PromptsFile)))
}
