package transport

import (
	"context"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/runtime/tensor"
)

// tensors returns the encoded tensors of the instruction to a client, in the outbox. Tensors for all clients are
// encoded once.
func (c *collection) tensors(h *Server, client int) (protocol.Content, error) {
	encode := func() (out protocol.Content, err error) {
		body, err := message.EncodeTensors(c.order.ForClient(client).Tensors())
		if err != nil {
			return out, err
		}
		return h.Stage(body)
	}
	if len(c.order.PerClient) > 0 {
		return encode()
	}
	c.once.Do(func() { c.common, c.err = encode() })
	return c.common, c.err
}

// forms returns the forms of a client's reply to an instruction, and the size of the largest such reply, in bytes.
func (h *Server) forms(o message.Instruction, client int) (forms tensor.Specs, most int64, err error) {
	h.Mu.Lock()
	task := h.clients[client].Participant.Task
	h.Mu.Unlock()
	forms = o.ReplySpecs(h.set.Method, h.terms, task)
	_, most, err = message.MaxEncodedSize(forms)
	return forms, most, err
}

// send sends one client its instruction.
func (h *Server) send(c *collection, client int) error {
	what, err := c.tensors(h, client)
	if err != nil {
		return err
	}
	x := &exchange.Pending{Instruction: protocol.InstructionFor(h.RunID, c.order, client)}
	x.Total, x.Content = h.set.Clients, what
	x.ID = x.Identity()
	forms, most, err := h.forms(c.order, client)
	x.Most = min(most, int64(h.Largest))
	x.Read = func(r protocol.Reply, body []byte, size int) (func(), error) {
		answer, err := h.decodeReply(c.order, forms, r, body)
		return func() { h.record(client, x.ID, answer, size) }, err
	}
	x.Fail = func(why string, refused error) {
		if refused != nil {
			h.recordRejection(client, refused)
		}
		h.recordFailure(client, x.ID, why)
	}
	h.Mu.Lock()
	x.Accepted, x.Safe = h.accepted[client], h.safe[client]
	c.given[client] = x.ID
	h.Mu.Unlock()
	if err != nil {
		x.Fail("no reply of its task is possible: "+err.Error(), err)
		return nil
	}
	return h.sessions[client].Deliver(x)
}

// Finish sends all clients the final shared parameters; each then stores its own part. It waits for them until the
// deadline.
func (h *Server) Finish(ctx context.Context, rounds int, prompts func(client int) (shared, down tensor.Map,
	err error)) error {
	o := message.Instruction{Kind: protocol.EndKind, Round: rounds, Total: h.set.Clients,
		PerClient: map[int]tensor.Map{}}
	for k := range h.set.Clients {
		shared, down, err := prompts(k)
		if err != nil {
			return err
		}
		o.Clients = append(o.Clients, k)
		o.Shared = shared
		if len(down) > 0 {
			o.PerClient[k] = down
		}
	}
	_, err := h.collect(ctx, o, 0, 1)
	return err
}
