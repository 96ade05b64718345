package client_test

import (
	"fmt"
	"math"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
)

// TestOverrides: clients 0 to 3 of the toy have 9, 5, 6 and 3 examples. With batches of 4, 2, 4 and 2, of 1, 2, 1 and 2
// epochs and at most 0 (any number), 4, 0 and 4 steps, by hand: 3 steps, 3 of 6 twice but at most 4, 2, and 4. A turn
// ends with its last step, however many epochs are left.
func TestOverrides(t *testing.T) {
	e := toy(t)
	e.Plan.Rounds = 1
	e.Training.Overrides = []spec.Overrides{{}, {Epochs: math.MaxInt32, Batch: 2, Steps: 4}}
	rec := trace.NewRecorder()
	mustRun(t, e, engine.Settings{Client: client.Settings{Tracer: rec}})
	for client, want := range []int{3, 4, 2, 4} {
		got := 0
		for rec.Tensors[fmt.Sprintf("r0/c%d/s%d/loss", client, got)] != nil {
			got++
		}
		if got != want {
			t.Errorf("client %d took %d steps, want %d", client, got, want)
		}
	}
	if rows := rec.Tensors["r0/c1/s0/label"].Len(); rows != 2 {
		t.Errorf("a batch of client 1 has %d examples", rows)
	}
	if rows := rec.Tensors["r0/c0/s0/label"].Len(); rows != 4 {
		t.Errorf("a batch of client 0 has %d examples", rows)
	}
}
