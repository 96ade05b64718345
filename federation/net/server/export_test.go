package server

import "time"

// SetDeadline changes the deadline of the next instructions, and forgets who missed earlier ones.
func (h *Server) SetDeadline(d time.Duration) {
	h.set.Deadline = d
	h.counts.change(func(c *counts) {
		c.limited.Unawaited = nil
		for k := range c.clients {
			c.clients[k].missed = 0
		}
	})
}
