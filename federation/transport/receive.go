package transport

import (
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/runtime/tensor"
)

// decodeReply decodes a reply, whose tensors must have the forms of its instruction.
func (h *Server) decodeReply(o message.Instruction, forms tensor.Specs, r protocol.Reply, body []byte) (message.Reply,
	error) {
	answer := r.Message()
	tensors, err := r.TensorsAs(body, forms)
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
func (h *Server) record(client int, id string, r message.Reply, size int) {
	h.Mu.Lock()
	c := h.current
	if c == nil || c.given[client] != id || !c.waits(client) {
		h.Mu.Unlock()
		return
	}
	r.Down = instructionSize(c.order.ForClient(client))
	c.got[client] = r
	h.answered(c, client)
	k := h.sessions[client]
	k.End(k.Pending)
	k.Replies++
	k.Up += int64(size)
	k.Seen = time.Now()
	h.Mu.Unlock()
	h.Counters.Up.Add(int64(size))
	h.Counters.Replies.Add(1)
	if h.set.OnReply != nil {
		h.set.OnReply(c.order, client)
	}
	exchange.Notify(c.wake)
}

// recordFailure records that a client has no answer.
func (h *Server) recordFailure(client int, id, why string) {
	h.Mu.Lock()
	c := h.current
	if c != nil && c.given[client] == id {
		c.failed[client] = why
		h.sessions[client].End(h.sessions[client].Pending)
	}
	h.clients[client].Refused++
	h.Mu.Unlock()
	h.Counters.Refused.Add(1)
	h.set.Log.Warn("no answer", "client", client, "reason", why)
	if c != nil {
		exchange.Notify(c.wake)
	}
}

// Rejected reports an upload on which the method failed.
func (h *Server) Rejected(round, client int, why error) {
	if client < 0 || client >= len(h.clients) {
		return
	}
	h.recordRejection(client, why)
	h.Mu.Lock()
	h.clients[client].Refused++
	h.Mu.Unlock()
	h.Counters.Refused.Add(1)
	h.set.Log.Warn("an upload is ignored", "round", round+1, "client", client, "reason",
		protocol.Printable(why.Error()))
}

// recordRejection records a refused reply for the round's record and the status.
func (h *Server) recordRejection(client int, why error) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	reason := protocol.Printable(why.Error())
	h.clients[client].reason = reason
	h.limited.Refused = append(h.limited.Refused, message.Refusal{Client: client, Reason: reason})
}
