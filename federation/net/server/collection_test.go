package server

import (
	"io"
	"math"
	"testing"

	"connectrpc.com/connect"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wire"
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

// Instructions are numbered upwards, also if the clock goes back.
func TestNumbersOfInstructions(t *testing.T) {
	m, request := newMailboxes(1), &pending{Instruction: &wire.Instruction{}}
	m.seq = math.MaxInt64 - 1
	if m.deliver(0, request); request.Seq != math.MaxInt64 {
		t.Errorf("the number is %d", request.Seq)
	}
}

// A file of the server that cannot be read back is no failure of the client, which calls again.
func TestUnreadableReply(t *testing.T) {
	h, c := newElection(t), newCollection(message.Instruction{Clients: []int{0}})
	c.give(0, "first")
	request := &pending{Instruction: &wire.Instruction{Id: "first"}, collection: c, over: t.Context()}
	err := h.complete(t.Context(), 0, request, &wire.Reply{Content: &wire.Content{Size: 1}},
		func() ([]byte, error) { return nil, io.ErrUnexpectedEOF })
	if connect.CodeOf(err) != connect.CodeUnavailable || len(c.failed) > 0 {
		t.Errorf("%v, %v", err, c.failed)
	}
}
