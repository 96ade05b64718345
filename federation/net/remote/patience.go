package remote

import (
	"fmt"

	"promptfed/federation/net/protocol"
)

// patience is how many deadlines a client may miss before rounds no longer wait for it, and missCost how many answers
// take back one. A client that is silent now and then therefore delays three instructions, and then at most one of
// missCost+1.
const patience, missCost = 3, 10

// silent reports whether a client missed so many deadlines that no round waits for it.
func (k *clientRecord) silent() bool { return k.missed > (patience-1)*missCost }

// expected reports whether an answer of a client may come: it joined, its certificate is valid and it is not silent.
func (k *clientRecord) expected() bool { return k.counts() && !k.silent() }

// awaited reports whether an instruction waits for a client that has it. The end of the run waits for all clients,
// because each gets the final parameters.
func (h *Server) awaited(c *collection, client int) bool {
	return c.instruction.Kind == protocol.EndKind || !h.clients[client].silent()
}

// deadlinePassed records which clients have an instruction and missed its deadline.
func (h *Server) deadlinePassed(c *collection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range c.instruction.Clients {
		m := &h.clients[k]
		if !m.Participant.Joined || !c.waits(k) {
			continue
		}
		before := m.silent()
		if m.missed = min(m.missed+missCost, patience*missCost); m.silent() && !before {
			h.limited.Unawaited = append(h.limited.Unawaited, k)
			h.set.Log.Warn("a client missed its deadlines; rounds do not wait for it until it has answered again",
				"client", k, "round", c.instruction.Round+1, "deadlines", patience, "answers", missCost)
		}
	}
}

// answered records an answer in time. Server.mu must be held.
func (h *Server) answered(c *collection, client int) {
	m := &h.clients[client]
	before := m.silent()
	if m.missed = max(0, m.missed-1); before && !m.silent() {
		h.set.Log.Info("a client answers again; rounds wait for it", "client", client, "round", c.instruction.Round+1)
	}
}

// missing returns the clients without an answer whose answers may come, and all others without one that did not fail.
// Server.mu must be held.
func (h *Server) missing(c *collection) (expected, others []int) {
	for _, k := range c.instruction.Clients {
		if _, answered := c.got[k]; answered || c.failed[k] != "" {
			continue
		}
		if h.clients[k].expected() {
			expected = append(expected, k)
		} else {
			others = append(others, k)
		}
	}
	return expected, others
}

// checkAlone returns an error if an instruction has too few answers, nobody is left to wait for, and no other
// instruction could have more: fewer clients of the run than Settings.Least, or none, may answer. Server.mu must be
// held.
func (h *Server) checkAlone(c *collection) error {
	expected, gone := h.missing(c)
	least := max(1, h.least(c))
	if len(c.got) >= least || len(expected) > 0 || len(gone) == 0 || h.set.KeepQuorum ||
		c.instruction.Kind == protocol.EndKind {
		return nil
	}
	may := 0
	for k := range h.clients {
		if h.clients[k].expected() {
			may++
		}
	}
	if may >= least {
		return nil
	}
	return fmt.Errorf("round %d: clients %v do not answer, and %d of the run's %d may; at least %d are needed: start "+
		"them again and continue with --resume", c.instruction.Round+1, gone, may, len(h.clients), least)
}
