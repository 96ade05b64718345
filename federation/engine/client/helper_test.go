package client_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// toy returns an experiment with FedPHA, which has shared and private prompts, on four toy clients.
func toy(t testing.TB) *spec.Experiment {
	t.Helper()
	m, err := methods.Build("fedpha", nil, map[string]any{"global_tokens": 3, "local_tokens": []int{2, 4},
		"projector": "exact-null"})
	if err != nil {
		t.Fatal(err)
	}
	return withMethod(m)
}

func withMethod(m method.Method) *spec.Experiment {
	return &spec.Experiment{Name: "toy", MethodName: "toy", Method: m, Classes: methodtest.Classes, Template: "a {}.",
		Clients:  methodtest.Clients(9, 5, 6, 3),
		Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}},
		Plan:     spec.Plan{Rounds: 3, TestEvery: 1, Seed: 5}}
}

func mustRun(t testing.TB, e *spec.Experiment, set engine.Settings) *engine.Result {
	t.Helper()
	r, err := engine.Run(context.Background(), e, set)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// refused runs an experiment and expects a one-line error with all the words.
func refused(t testing.TB, e *spec.Experiment, set engine.Settings, words ...string) {
	t.Helper()
	_, err := engine.Run(context.Background(), e, set)
	says(t, err, words...)
}

func says(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; expected one with %q", words)
		return
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has more than one line: %v", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error %q does not say %q", err, w)
		}
	}
}

func prompts(t testing.TB, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, record.PromptsFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func same(t *testing.T, got, want *tensor.Tensor) {
	t.Helper()
	if !got.SameShape(want) {
		t.Fatalf("%v, expected %v", got, want)
	}
	for i, v := range want.Data {
		if d := math.Abs(float64(got.Data[i] - v)); !(d < 1e-5) {
			t.Fatalf("score %d is %v, expected %v", i, got.Data[i], v)
		}
	}
}
