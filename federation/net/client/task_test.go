package client

import (
	"errors"
	"strings"
	"testing"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/wire"
)

// The log has the first hundred instructions that a client drops, and each thousandth one.
func TestDroppedInstructions(t *testing.T) {
	var logs nettest.Logs
	c := &Client{log: logs.Logger()}
	for range 2000 {
		c.receive(received{dropped: errors.New("invalid")})
	}
	if n := strings.Count(logs.String(), "an instruction is dropped"); n != 102 {
		t.Errorf("%d are logged", n)
	}
}

// Time limits the report of the final parameters alone.
func TestLate(t *testing.T) {
	for kind, want := range map[string]bool{wire.EndKind: true, string(message.Train): false} {
		old := &task{Instruction: &wire.Instruction{Kind: kind}, result: result{reply: &wire.Reply{}}} // of the year 1
		if old.late() != want {
			t.Errorf("%s: %t", kind, !want)
		}
	}
}
