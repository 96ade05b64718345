package server

import (
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// Tensors for one client that are too large belong to this client, whatever its feature dimension is. Those for all,
// and those for each of several clients, end the run: --largest is too small.
func TestTooLargeForOneClient(t *testing.T) {
	for name, c := range map[string]struct {
		large []int // clients with large tensors
		ends  bool
		more  string // says
	}{
		"last":  {[]int{2}, false, "at most 1000 are possible"},
		"first": {[]int{0}, false, "at most 1000 are possible"},
		"each":  {[]int{0, 1, 2}, true, "at most 1000 are possible"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newLimited(t, nil)
			h.set.Largest = 1000
			o := message.Instruction{Kind: message.Train, Clients: []int{0, 1, 2}, Total: 5, Shared: tensor.Map{},
				PerClient: map[int]tensor.Map{}}
			for _, k := range c.large {
				o.PerClient[k] = tensor.Map{"proto": tensor.New(1000)}
			}
			x := newCollection(o)
			h.current.Store(x)
			err := h.sendAll(x, true)
			if (err != nil) != c.ends || err != nil && !strings.Contains(err.Error(), c.more) {
				t.Fatal(err)
			}
			if liar := c.large[0]; !c.ends && (!strings.Contains(x.failed[liar], c.more) || len(x.failed) != 1 ||
				!x.open(1) || h.counts.tally(liar).refused != 1) {
				t.Errorf("%v, %+v", x.failed, h.counts.tally(liar))
			}
		})
	}
	h := newLimited(t, nil)
	h.set.Largest = 1000
	x := newCollection(message.Instruction{Kind: message.Train, Clients: []int{0},
		Shared: tensor.Map{"ctx": tensor.New(1000)}})
	goldentest.WantError(t, h.sendAll(x, true), "(--largest)")
}
