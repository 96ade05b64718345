package optim_test

import (
	"testing"

	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// BenchmarkStep measures a step of SGD on as many numbers as FedTPG's generator has.
func BenchmarkStep(b *testing.B) {
	o, err := optim.New(optim.Config{Name: "sgd", Momentum: 0.9, WeightDecay: 5e-4})
	goldentest.NoError(b, err)
	params, grads := tensor.Map{"w": tensor.New(4096, 1024)}, tensor.Map{"w": tensor.New(4096, 1024)}
	for b.Loop() {
		goldentest.NoError(b, o.Step(params, grads, 0.1))
	}
}
