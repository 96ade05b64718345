package transport

import (
	"time"

	"promptfed/federation/engine"
)

// read is a reply with its tensors, unless they are none that an order could have.
func (h *Hub) read(o engine.Order, r reply, body []byte) (engine.Reply, error) {
	answer := engine.Reply{Client: r.Client, Stats: engine.Stats{Loss: r.Loss, Steps: r.Steps}}
	answer.Upload.Client, answer.Upload.N = r.Client, r.N
	if r.Scores != nil {
		answer.Scores = *r.Scores
	}
	tensors, err := r.tensors(body)
	if err != nil {
		return answer, err
	}
	answer, err = answer.With(tensors)
	answer.Up = answer.UploadSize()
	if err == nil && o.Kind != endKind {
		err = o.Refuse(answer, h.set.Sealed)
	}
	if err == nil {
		err = h.bounded(o, answer)
	}
	return answer, err
}

// keep lets a reply count, once.
func (h *Hub) keep(client int, id string, r engine.Reply, size int) {
	h.mu.Lock()
	c := h.now
	_, got := map[int]engine.Reply(nil), false
	if c != nil {
		_, got = c.got[client]
	}
	if c == nil || c.given[client] != id || got || c.failed[client] != "" {
		h.mu.Unlock()
		return
	}
	r.Down = orderSize(c.order.For(client))
	c.got[client] = r
	k := h.desks[client]
	k.end(k.now)
	k.replies++
	k.up += int64(size)
	k.seen = time.Now()
	h.mu.Unlock()
	h.count.up.Add(int64(size))
	h.count.replies.Add(1)
	if h.set.OnReply != nil {
		h.set.OnReply(c.order, client)
	}
	poke(c.wake)
}

// fail notes that a client has no answer to its order.
func (h *Hub) fail(client int, id, why string) {
	h.mu.Lock()
	c := h.now
	if c != nil && c.given[client] == id {
		c.failed[client] = why
		h.desks[client].end(h.desks[client].now)
	}
	h.known[client].refused++
	h.mu.Unlock()
	h.count.refused.Add(1)
	h.set.Log.Warn("no answer", "client", client, "reason", why)
	if c != nil {
		poke(c.wake)
	}
}

// Refused hears that the method could not do with what a client uploaded.
func (h *Hub) Refused(round, client int, why error) {
	if client < 0 || client >= len(h.known) {
		return
	}
	h.refuse(client, why)
	h.mu.Lock()
	h.known[client].refused++
	h.mu.Unlock()
	h.count.refused.Add(1)
	h.set.Log.Warn("an upload is left out", "round", round, "client", client, "reason", plain(why.Error()))
}

// refuse notes for the round's record, and for the status, that a reply is refused.
func (h *Hub) refuse(client int, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	reason := plain(why.Error())
	h.known[client].reason = reason
	h.limited.Refused = append(h.limited.Refused, engine.Refusal{Client: client, Reason: reason})
}
