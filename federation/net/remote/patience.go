package remote

import "promptfed/federation/net/protocol"

// patience is how many deadlines a client may miss before rounds no longer wait for it. Each answer takes back one.
const patience = 3

// awaited reports whether an instruction waits for a client that has it. The end of the run waits for all clients,
// because each gets the final parameters.
func (h *Server) awaited(c *collection, client int) bool {
	return c.instruction.Kind == protocol.EndKind || h.clients[client].missed < patience
}

// deadlinePassed records which clients have an instruction and missed its deadline.
func (h *Server) deadlinePassed(c *collection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range c.instruction.Clients {
		m := &h.clients[k]
		if !m.Participant.Joined || m.left || !c.waits(k) || m.missed == patience {
			continue
		}
		if m.missed++; m.missed == patience {
			h.limited.Unawaited = append(h.limited.Unawaited, k)
			h.set.Log.Warn("a client missed its deadlines; rounds do not wait for it until it answers", "client", k,
				"round", c.instruction.Round+1, "deadlines", patience)
		}
	}
}

// answered records an answer in time. Server.mu must be held.
func (h *Server) answered(c *collection, client int) {
	m := &h.clients[client]
	if m.missed == patience {
		h.set.Log.Info("a client answers again; rounds wait for it", "client", client, "round", c.instruction.Round+1)
	}
	m.missed = max(0, m.missed-1)
}
