package remote

import (
	"promptfed/federation/engine/message"
	"promptfed/federation/net/protocol"
	"promptfed/runtime/tensor"
)

// decodeReply decodes a reply, whose tensors must have the forms of its instruction.
func (h *Server) decodeReply(o message.Instruction, forms tensor.Specs, client int, r *protocol.Reply,
	body []byte) (message.Reply, error) {
	answer, err := r.Message(client)
	if err != nil {
		return answer, err
	}
	tensors, err := r.Content.TensorsAs(body, forms)
	if err != nil {
		return answer, err
	}
	answer, err = o.WithReplyTensors(answer, tensors)
	answer.Up = answer.UploadSize()
	if err == nil && o.Kind != protocol.EndKind {
		err = o.Check(answer)
	}
	if err == nil {
		err = h.checkReply(o, answer)
	}
	return answer, err
}

// record accepts a reply, once.
func (h *Server) record(client int, x *pending, r message.Reply, size int) {
	h.mu.Lock()
	c := h.current
	if c == nil || c.given[client] != x.Id || !c.waits(client) {
		h.mu.Unlock()
		return
	}
	r.Down = len(x.body)
	c.got[client] = r
	h.answered(c, client)
	k := &h.clients[client]
	k.finish()
	k.replies++
	k.up += int64(size)
	h.mu.Unlock()
	h.counters.up.Add(int64(size))
	h.counters.replies.Add(1)
	if h.set.OnReply != nil {
		h.set.OnReply(c.instruction, client)
	}
	notify(c.wake)
}

// recordFailure records that a client has no answer.
func (h *Server) recordFailure(client int, id, why string) {
	h.mu.Lock()
	c := h.current
	if c != nil && c.given[client] == id {
		c.failed[client] = why
		h.clients[client].finish()
	}
	h.clients[client].refused++
	h.mu.Unlock()
	h.counters.refused.Add(1)
	h.set.Log.Warn("no answer", "client", client, "reason", why)
	if c != nil {
		notify(c.wake)
	}
}

// Rejected reports an upload on which the method failed.
func (h *Server) Rejected(round, client int, why error) {
	if client < 0 || client >= len(h.clients) {
		return
	}
	h.recordRejection(client, why)
	h.mu.Lock()
	h.clients[client].refused++
	h.mu.Unlock()
	h.counters.refused.Add(1)
	h.set.Log.Warn("an upload is ignored", "round", round+1, "client", client, "reason",
		protocol.Printable(why.Error()))
}

// recordRejection records a refused reply for the round's record and the status.
func (h *Server) recordRejection(client int, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	reason := protocol.Printable(why.Error())
	h.clients[client].reason = reason
	h.limited.Refused = append(h.limited.Refused, message.Refusal{Client: client, Reason: reason})
}
