package record

import (
	"math"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/runtime/tensor"
)

// TestDriftByHand: the updates are (3, 4, 0), (0, 0, 0) and (3, 0, -4) over the tensors a and b, and their mean is
// (2, 4/3, -4/3), of length √68/3, whatever numbers of examples the clients have. The first has the product
// 6 + 16/3 = 34/3 with it, and so the cosine (34/3) / (5 √68/3) = √68/10; the last has the same.
func TestDriftByHand(t *testing.T) {
	build := func(client int, a1, a2, b float32) message.Reply {
		return message.Reply{Client: client, Upload: method.Upload{N: client + 1, Shared: tensor.Map{
			"a": tensor.Of([]float32{a1, a2}, 2), "b": tensor.Of([]float32{b}, 1)}}}
	}
	sent := build(0, 1, 2, 5).Upload.Shared
	got := DriftOf(sent, []message.Reply{build(0, 4, 6, 5), build(2, 1, 2, 5), build(7, 4, 2, 1)})
	if len(got) != 3 || got[0].Client != 0 || got[1].Client != 2 || got[2].Client != 7 {
		t.Fatalf("%+v", got)
	}
	for i, norm := range []float64{5, 0, 5} {
		if got[i].Norm != norm || (got[i].Cosine == nil) != (norm == 0) ||
			norm > 0 && math.Abs(*got[i].Cosine-math.Sqrt(68)/10) > 1e-12 {
			t.Errorf("client %d: %+v, want the norm %g", got[i].Client, got[i], norm)
		}
	}

	// (3, 4, 0) and (-3, -4, 0) have no mean direction
	got = DriftOf(sent, []message.Reply{build(0, 4, 6, 5), build(1, -2, -2, 5)})
	if got[0].Norm != 5 || got[0].Cosine != nil {
		t.Errorf("%+v", got)
	}
	sum := build(0, 4, 6, 5)
	sum.Sum = []int{0, 1}
	if DriftOf(sent, []message.Reply{sum}) != nil || DriftOf(nil, []message.Reply{{}}) != nil {
		t.Error("a sum of clients, or clients that share nothing, have a drift")
	}
}
