package personalized_test

import (
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// PromptFolio with theta 0 is PromptFL, with theta 1 CoOp, from the same first prompt to the last bit.
func TestPromptFolioBetweenPromptFLAndCoOp(t *testing.T) {
	prompt := methodtest.Values(60, 0.5, 3, methodtest.Width)
	end := func(name, learned string, o methodtest.Options) *tensor.Tensor {
		m := methodtest.Build(t, name, nil, methodtest.Merge(methodtest.Options{"tokens": 3}, o))
		first := tensor.Map{"c0/" + learned: prompt, learned: prompt}
		r := enginetest.Run(t, &spec.Experiment{
			Method: methodtest.Pinned{Method: m, First: first}, Classes: methodtest.Classes, Template: "a {}.",
			Clients: methodtest.Clients(9, 5), Plan: spec.Plan{Rounds: 2, Seed: 5},
			Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1, Momentum: 0.9}},
		}, engine.Settings{})
		for _, at := range []string{"shared/", "client/0/private/"} {
			if p := r.Prompts[at+learned]; p != nil {
				return p
			}
		}
		t.Fatalf("%s left no %s", name, learned)
		return nil
	}
	for theta, c := range map[float64][2]string{0: {"promptfl", "global"}, 1: {"coop", "local"}} {
		got, want := end("promptfolio", c[1], methodtest.Options{"theta": theta}), end(c[0], "ctx", nil)
		for i, v := range want.Data {
			if got.Data[i] != v || v == prompt.Data[i] {
				t.Fatalf("theta %v: element %d is %v, of %s %v, at first %v", theta, i, got.Data[i], c[0], v,
					prompt.Data[i])
			}
		}
	}
}
