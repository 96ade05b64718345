package engine_test

import (
	"context"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
)

func synthetic(t *testing.T, rounds int) *spec.Experiment {
	t.Helper()
	m := buildMethod(t, "gptfl", nil, map[string]any{"tokens": 2})
	clients := methodtest.Clients(6, 5)
	return &spec.Experiment{Name: "toy", Method: m, Classes: methodtest.Classes, Template: "a photo of a {}.",
		Clients:   clients,
		Training:  spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9}},
		Synthetic: &spec.Synthetic{Backbone: clients[0].Backbone, Data: clients[0].Test, Epochs: 2},
		Plan:      spec.Plan{Rounds: rounds, Seed: 3}}
}

// TestSyntheticOnce: a run that resumes after round 1 does not train on the server's images again, and has the results
// of an uninterrupted run.
func TestSyntheticOnce(t *testing.T) {
	whole := mustRun(t, synthetic(t, 3), engine.Settings{})
	dir := t.TempDir()
	if _, err := engine.Run(context.Background(), synthetic(t, 1), engine.Settings{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Run(context.Background(), synthetic(t, 3), engine.Settings{Dir: dir,
		Resume: true}); err != nil {
		t.Fatal(err)
	}
	rest, _, err := state.ReadPrompts(dir)
	goldentest.NoError(t, err)
	for i, v := range whole.Prompts["shared/ctx"].Data {
		if rest["shared/ctx"].Data[i] != v {
			t.Fatalf("element %d is %g in one run and %g in two", i, v, rest["shared/ctx"].Data[i])
		}
	}
	without := synthetic(t, 3)
	without.Synthetic = nil
	plain := mustRun(t, without, engine.Settings{})
	if plain.Prompts["shared/ctx"].Data[0] == whole.Prompts["shared/ctx"].Data[0] {
		t.Error("the server's images changed nothing")
	}
}
