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
		err = o.CheckTerms(answer.Stats.Terms, h.terms, h.set.Method, h.taskOf(client))
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
	h.totals.BytesUp += int64(size)
	h.totals.Replies++
	h.mu.Unlock()
	if h.set.OnReply != nil {
		h.set.OnReply(c.instruction, client)
	}
	notify(c.wake)
}

// refuse records that a client has no answer to an instruction, since its reply is refused.
func (h *Server) refuse(client int, id, what string, why error) {
	h.recordRejection(client, why)
	h.recordFailure(client, id, what+protocol.Printable(why.Error()))
}

// recordFailure records that a client has no answer.
func (h *Server) recordFailure(client int, id, why string) {
	h.countRefusal(client)
	h.set.Log.Warn("no answer", "client", client, "reason", why) // before the instruction may end
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.current; c != nil && c.given[client] == id {
		c.failed[client] = why
		h.clients[client].finish()
		notify(c.wake)
	}
}

// Rejected reports an upload on which the method failed.
func (h *Server) Rejected(round, client int, why error) {
	if client < 0 || client >= len(h.clients) {
		return
	}
	h.recordRejection(client, why)
	h.countRefusal(client)
	h.set.Log.Warn("an upload is ignored", "round", round+1, "client", client, "reason",
		protocol.Printable(why.Error()))
}

func (h *Server) countRefusal(client int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients[client].refused++
	h.totals.Refused++
}

// recordRejection records a refused reply for the round's record and the status.
func (h *Server) recordRejection(client int, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	reason := protocol.Printable(why.Error())
	h.clients[client].reason = reason
	h.limited.Refused = append(h.limited.Refused, message.Refusal{Client: client, Reason: reason})
}
