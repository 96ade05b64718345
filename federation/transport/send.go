package transport

import (
	"context"
	"time"

	"promptfed/federation/engine"
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
	if len(c.order.Each) > 0 {
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
	out := headed(h.set.ID, c.order, client)
	out.Of, out.Try, out.content = h.set.Clients, NewID(), what
	h.mu.Lock()
	h.seq = max(h.seq+1, time.Now().UnixNano())
	out.Seq, out.Accepted, out.Safe = h.seq, h.accepted[client], h.safe[client]
	out.ID = out.identity()
	c.orders[client] = out
	h.known[client].seq = out.Seq
	h.mu.Unlock()
	return h.push(c, out)
}

// push sends an order. It may get lost; then the client's next sign of life says that it has not got it, and remind
// sends it again.
func (h *Hub) push(c *collection, o order) error {
	var body []byte
	var err error
	if o.Object == "" {
		if body, err = h.spool.read(o.Sum, 0, o.Size); err != nil {
			return err
		}
	}
	message, err := pack(h.voice.Load().signer, orderMessage, o, body)
	if err != nil {
		return err
	}
	h.mu.Lock()
	p := c.pushed[o.Client]
	if p.try != o.Try {
		p = push{try: o.Try, pause: pushPause + time.Duration(len(message))*pushByte}
	} else {
		p.pause = min(2*p.pause, time.Minute)
	}
	p.at = time.Now()
	c.pushed[o.Client] = p
	h.known[o.Client].down += int64(len(message))
	h.mu.Unlock()
	h.count.down.Add(int64(len(message)))
	return h.nc.Publish(h.orders(o.Client), message)
}

// push is when an order was sent and how long the next time must wait, since a slow link may have it still.
type push struct {
	try   string
	at    time.Time
	pause time.Duration
}

const (
	pushPause = 1500 * time.Millisecond
	pushByte  = 20 * time.Microsecond
)

// remind sends a client its order again that it has not got, and gives it anew where it was done and its reply is not
// here.
func (h *Hub) remind(client int) {
	h.mu.Lock()
	c := h.now
	if c == nil || !c.waits(client) {
		h.mu.Unlock()
		return
	}
	o, k, p := c.orders[client], &h.known[client], c.pushed[client]
	due := time.Since(p.at) >= p.pause
	switch {
	case k.try != o.Try && due:
		h.mu.Unlock()
		if err := h.push(c, o); err != nil {
			h.set.Log.Debug("an order could not be sent again", "client", client, "error", err)
		}
		return
	case k.try == o.Try && k.doing == idle && due:
		c.again[client] = true
		poke(c.wake)
	}
	h.mu.Unlock()
}

// idle is what a client does that has no order to do.
const idle = "waits"

// Finish tells all clients that the run is over and what the shared parameters are; each then keeps its own part. It
// waits for them until the deadline is over.
func (h *Hub) Finish(ctx context.Context, rounds int, prompts func(client int) (shared, down tensor.Map,
	err error)) error {
	o := engine.Order{Kind: endKind, Round: rounds, Of: h.set.Clients, Each: map[int]tensor.Map{}}
	for k := range h.set.Clients {
		shared, down, err := prompts(k)
		if err != nil {
			return err
		}
		o.Clients = append(o.Clients, k)
		o.Shared = shared
		if len(down) > 0 {
			o.Each[k] = down
		}
	}
	_, err := h.collect(ctx, o, 0, 1)
	return err
}
