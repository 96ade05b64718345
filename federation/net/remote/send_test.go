package remote

import (
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/runtime/tensor"
)

// Tensors for one client that are too large because of its feature dimension belong to this client. Those of a client
// with the usual dimension, and those for all, end the run: --largest is too small.
func TestTooLargeForOneClient(t *testing.T) {
	for name, c := range map[string]struct {
		dim  int
		ends bool
		more string // says
	}{
		"a client with large features": {9, false, "at most 1000 are possible"},
		"a usual client":               {3, true, "at most 1000 are possible"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newLimited(t, nil)
			h.set.Largest, h.set.Clients = 1000, len(h.clients)
			for k := range h.clients {
				h.clients[k].Participant.Task.Dim = 3
			}
			h.clients[2].Participant.Task.Dim = c.dim
			o := message.Instruction{Kind: message.Train, Clients: []int{0, 1, 2}, Total: 5, Shared: tensor.Map{},
				PerClient: map[int]tensor.Map{2: {"proto": tensor.New(1000)}}}
			x := &collection{instruction: o, given: map[int]string{}, got: map[int]message.Reply{},
				failed: map[int]string{}, wake: make(chan struct{}, 1)}
			h.current = x
			err := h.sendAll(x, true)
			if (err != nil) != c.ends || err != nil && !strings.Contains(err.Error(), c.more) {
				t.Fatal(err)
			}
			if !c.ends && (!strings.Contains(x.failed[2], c.more) || len(x.failed) != 1 || !x.waits(0) ||
				h.clients[2].refused != 1) {
				t.Errorf("%v, %+v", x.failed, h.clients[2])
			}
		})
	}
	h := newLimited(t, nil)
	h.set.Largest = 1000
	x := &collection{instruction: message.Instruction{Kind: message.Train, Clients: []int{0},
		Shared: tensor.Map{"ctx": tensor.New(1000)}}, given: map[int]string{}}
	if err := h.sendAll(x, true); err == nil || !strings.Contains(err.Error(), "(--largest)") {
		t.Error(err)
	}
}
