package transport

import (
	"context"

	"promptfed/federation/engine/message"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// tensors are the encoded tensors of the order to a client, in the spool. Those that all clients get are encoded once.
func (c *collection) tensors(h *Hub, client int) (content, error) {
	encode := func() (out content, err error) {
		body, err := wire.Encode(c.order.For(client).Tensors())
		if err != nil {
			return out, err
		}
		if out.of(body); len(body) > h.set.Limit {
			out.away()
		}
		return out, h.spool.put(out.Sum, body)
	}
	if len(c.order.PerClient) > 0 {
		return encode()
	}
	c.once.Do(func() { c.common, c.err = encode() })
	return c.common, c.err
}

// send gives one client its order.
func (h *Hub) send(c *collection, client int) error {
	what, err := c.tensors(h, client)
	if err != nil {
		return err
	}
	x := &exchange{order: headed(h.id, c.order, client)}
	x.Of, x.content = h.set.Clients, what
	x.ID = x.identity()
	x.read = func(r reply, body []byte, size int) (func(), error) {
		answer, err := h.read(c.order, r, body)
		return func() { h.keep(client, x.ID, answer, size) }, err
	}
	x.fail = func(why string, refused error) {
		if refused != nil {
			h.refuse(client, refused)
		}
		h.fail(client, x.ID, why)
	}
	h.mu.Lock()
	x.Accepted, x.Safe = h.accepted[client], h.safe[client]
	c.given[client] = x.ID
	h.mu.Unlock()
	return h.desks[client].begin(x)
}

// Finish tells all clients that the run is over and what the shared parameters are; each then keeps its own part. It
// waits for them until the deadline is over.
func (h *Hub) Finish(ctx context.Context, rounds int, prompts func(client int) (shared, down tensor.Map,
	err error)) error {
	o := message.Instruction{Kind: endKind, Round: rounds, Total: h.set.Clients, PerClient: map[int]tensor.Map{}}
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
