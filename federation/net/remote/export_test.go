package remote

import "time"

// SetDeadline changes the deadline of the next instructions, and forgets who missed earlier ones.
func (h *Server) SetDeadline(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set.Deadline, h.limited.Unawaited = d, nil
	for k := range h.clients {
		h.clients[k].missed = 0
	}
}
