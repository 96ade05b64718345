package personalized_test

import (
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// An image's scores do not depend on the other tested images: 70 images, scored 64 and 6 at a time, have the same
// scores in any order. The public code's rule, which stops for all images of a batch at once, changes them.
func TestFedOTPGrouping(t *testing.T) {
	const n, dim = 70, 5
	scores := func(stop string, order []int) *tensor.Tensor {
		o := methodtest.Options{"tokens": 2, "init_std": 2.0, "eps": 0.3, "threshold": 0.02}
		if stop != "" {
			o["stop"] = stop
		}
		m := methodtest.Build(t, "fedotp", nil, o)
		clients := methodtest.ClientsOfOneBackbone(5)
		all := methodtest.Rows(300, n, dim, len(methodtest.Classes))
		image, patches := tensor.New(n, dim), tensor.New(n, 2, dim)
		class := make([]int64, n)
		for i, from := range order {
			copy(image.Row(i).Data, all.Views[0].(spec.InMemory).Row(from).Data)
			copy(patches.Row(i).Data, all.Patches[0].(spec.InMemory).Row(from).Data)
			class[i] = all.Class[from]
		}
		clients[0].Test = &spec.Features{Views: []spec.RowReader{spec.InMemory{Tensor: image}}, Class: class,
			Patches: []spec.RowReader{spec.InMemory{Tensor: patches}}}
		rec := trace.NewRecorder()
		enginetest.Run(t, &spec.Experiment{Method: m, Classes: methodtest.Classes,
			Template: "a {}.", Clients: clients,
			Plan: spec.Plan{Rounds: 1, TestEvery: 1, Seed: 1}, Training: spec.Training{Epochs: 1, Batch: 4,
				Optim: optim.Config{Name: "sgd", LR: 0.1}}}, engine.Settings{Client: client.Settings{Tracer: rec}})
		return rec.Tensors["r0/c0/eval/logits"]
	}
	first := make([]int, n)
	for i := range first {
		first[i] = i
	}
	other := slices.Clone(first)
	slices.Reverse(other)
	apart := func(stop string) (worst float64) {
		a, b := scores(stop, first), scores(stop, other)
		for i := range n {
			for c, v := range a.Row(i).Data {
				worst = math.Max(worst, math.Abs(float64(v-b.Row(n - 1 - i).Data[c])))
			}
		}
		return worst
	}
	for _, stop := range []string{"", "image", "pair"} {
		if d := apart(stop); d > 1e-6 {
			t.Errorf("stop %q: scores of the same images differ by %.1e between two orders", stop, d)
		}
	}
	if d := apart("code"); d < 1e-4 {
		t.Errorf("stop code: scores differ by %.1e; the test tells nothing", d)
	}
}
