package server

import (
	"testing"

	"promptfed/federation/engine/message"
)

// A client that an instruction does not ask, such as one whose certificate is revoked meanwhile, lowers no quorum and
// is no failure. A client that is asked fails in all its attempts, or in the one that it has.
func TestOnlyAskedClientsFail(t *testing.T) {
	c := newCollection(message.Instruction{Clients: []int{0, 2}})
	c.give(0, "first")
	for _, x := range []struct {
		client int
		id     string
		want   bool
	}{{1, "", false}, {1, "first", false}, {0, "other", false}, {0, "first", true}, {0, "", false}, {2, "", true}} {
		counted := false
		if got := c.fail(x.client, x.id, "revoked", func() { counted = true }); got != x.want || counted != x.want {
			t.Errorf("client %d, instruction %q: %v, counted %v", x.client, x.id, got, counted)
		}
	}
	if len(c.failed) != 2 {
		t.Errorf("%v", c.failed)
	}
}
