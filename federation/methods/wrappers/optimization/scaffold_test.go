package optimization_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// With plain gradient descent the path of K steps is the mean of the step directions g - c_i + c. Control variates from
// the path, minus that correction, therefore equal those from the gradients themselves. With momentum the two differ.
func TestSCAFFOLDPathIsTheGradients(t *testing.T) {
	run := func(control string, momentum float64) *trace.Recorder {
		m := methodtest.Build(t, "promptfl", []string{"scaffold"}, methodtest.Options{"tokens": 2, "init_std": 0.4,
			"control": control})
		rec := trace.NewRecorder()
		enginetest.Run(t, &spec.Experiment{Method: m, Classes: methodtest.Classes,
			Template: "a {}.",
			Clients:  methodtest.Clients(9, 5, 6), Plan: spec.Plan{Rounds: 3, Seed: 5},
			Training: spec.Training{Epochs: 2, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.2,
				Momentum: momentum}}},
			engine.Settings{Client: client.Settings{Tracer: rec}})
		return rec
	}
	apart := func(momentum float64) (worst float64) {
		path, gradients := run("path", momentum), run("gradients", momentum)
		for r := range 3 {
			for _, name := range []string{"r%d/merged/ctx", "r%d/down/scaffold/c/ctx", "r%d/c0/upload/scaffold/dc/ctx",
				"r%d/c2/upload/scaffold/dc/ctx"} {
				name = fmt.Sprintf(name, r)
				a, b := path.Tensors[name], gradients.Tensors[name]
				for i, v := range a.Data {
					worst = math.Max(worst, math.Abs(float64(v-b.Data[i]))/b.MaxAbs())
				}
			}
		}
		return worst
	}
	if d := apart(0); d > 1e-5 {
		t.Errorf("path and gradients differ by %.1e", d)
	}
	if d := apart(0.9); d < 0.5 {
		t.Errorf("with momentum path and gradients differ by %.1e only", d)
	}
}

// A client that never trains is none of N, which is 2: of a move and a control variate of 1, c is 1/2. FedDyn with
// alpha 1/2 has h = -1/4, and the mean less h/alpha is 3/2.
func TestClientsThatNeverTrainDoNotCount(t *testing.T) {
	one, zero := tensor.Of([]float32{1}, 1), tensor.New(1)
	for wrapper, want := range map[string][]float32{"scaffold": {1, 0.5}, "feddyn": {1.5, 0}} {
		o := map[string]options{"scaffold": nil, "feddyn": {"alpha": 0.5}}[wrapper]
		g := &method.Global{Clients: 3, Sampling: method.Sampling{Clients: 2}, State: tensor.Map{},
			Shared: tensor.Map{"ctx": zero}, Broadcast: tensor.Map{"scaffold/c/ctx": zero}}
		up := method.Upload{N: 1, Shared: tensor.Map{"ctx": one}, Extra: tensor.Map{"scaffold/dc/ctx": one}}
		goldentest.NoError(t, methodtest.Build(t, "promptfl", []string{wrapper}, o).Merge(g, []method.Upload{up}))
		if got := []float32{g.Shared["ctx"].Data[0], g.Broadcast["scaffold/c/ctx"].Data[0]}; !slices.Equal(got, want) {
			t.Errorf("%s: prompt and c are %v, by hand %v", wrapper, got, want)
		}
	}
}
