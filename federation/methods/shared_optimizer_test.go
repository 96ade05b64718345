package methods_test

import (
	"fmt"
	"math"
	"testing"

	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
)

// TestSharedOptimizer: two rounds of two clients, two steps each, with a fresh optimizer in every turn, and with one
// that passes from client to client and from round to round. The numbers are those of PyTorch 1.13, by
// tools/golden/shared_optimizer.py.
func TestSharedOptimizer(t *testing.T) {
	var want map[string][]float64
	goldentest.ReadJSON(t, "testdata/optimizer/shared.json", &want)
	for _, kind := range []string{"fresh", "shared"} {
		h := methodtest.HandExample{Method: "promptfl", Options: map[string]any{"tokens": 1}, Epochs: 2, LR: 0.1,
			Momentum: 0.9, WeightDecay: 5e-4,
			Shared: kind == "shared", First: map[string]float64{"ctx": 0.25}, Want: map[string]float64{}}
		numbers := want[kind]
		for r := range 2 {
			for c := range 2 {
				for s := range 2 {
					h.Want[fmt.Sprintf("r%d/c%d/s%d/after/ctx", r, c, s)] = numbers[5*r+2*c+s]
				}
			}
			h.Want[fmt.Sprintf("r%d/merged/ctx", r)] = numbers[5*r+4]
		}
		t.Run(kind, h.Check)
	}
	if math.Abs(want["fresh"][2]-want["shared"][2]) < 1e-3 {
		t.Error("PyTorch's client 1 takes the same first step with both")
	}
}
