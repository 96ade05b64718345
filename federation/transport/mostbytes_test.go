package transport

import (
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/runtime/tensor"
)

// The bound of a reply follows from its order: 2*3 parameters of 4 bytes, 64 KiB and 17 KiB for the one parameter;
// tests have no tensors but a confusion matrix, whose size is not known. Behind a guard nothing is known.
func TestMostBytes(t *testing.T) {
	h := limiting(t, nil)
	train := message.Instruction{Kind: message.Train, Shared: tensor.Map{"ctx": tensor.New(2, 3)}}
	for _, c := range []struct {
		o    message.Instruction
		want int
	}{{train, 24 + 65536 + 17408}, {message.Instruction{Kind: message.Test, Shared: train.Shared}, 65536},
		{message.Instruction{Kind: message.Test, Confusion: true}, 0},
		{message.Instruction{Kind: message.Compute}, 0}} {
		if got := h.mostBytes(c.o, 0); got != c.want {
			t.Errorf("%s: %d, want %d", c.o.Kind, got, c.want)
		}
	}
	if h.set.Masked = true; h.mostBytes(train, 0) != 0 {
		t.Error("the size of a masked upload is not known")
	}
}
