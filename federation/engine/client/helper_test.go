package client_test

import (
	"math"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/runtime/tensor"
)

var (
	toy         = enginetest.Toy
	withMethod  = enginetest.WithMethod
	buildMethod = enginetest.Build
	mustRun     = enginetest.Run
	refused     = enginetest.Refused
	prompts     = enginetest.Prompts
)

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
