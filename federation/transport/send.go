package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
	"promptfed/federation/wire"
	"promptfed/runtime/tensor"
)

// send gives one client its order.
func (h *Hub) send(ctx context.Context, c *collection, client int) error {
	o := c.order.For(client)
	body, err := wire.Encode(o.Tensors())
	if err != nil {
		return err
	}
	h.mu.Lock()
	out := headed(h.set.ID, o, client)
	out.Of, out.Try, out.Accepted, out.Safe = h.set.Clients, c.try, h.accepted[client], h.safe[client]
	h.mu.Unlock()
	out.of(body)
	out.ID = out.identity()
	size := len(body)
	if size > h.set.Limit {
		out.Object = out.ID
		if err := h.put(ctx, client, out.Object, body); err != nil {
			return err
		}
		body = nil
	}
	message, err := pack(out, body)
	if err != nil {
		return err
	}
	h.mu.Lock()
	c.ids[client] = out.ID
	h.mu.Unlock()
	// The identity with the attempt: another attempt is another message, the same one sent twice is not.
	if _, err := h.js.Publish(ctx, h.subject(orderSubject, client), message, jetstream.WithMsgID(out.ID+out.Try)); err != nil {
		return fmt.Errorf("cannot give client %d its order: %w", client, err)
	}
	sent := len(message)
	if out.Object != "" {
		sent += size
	}
	h.mu.Lock()
	h.known[client].down += int64(sent)
	h.mu.Unlock()
	h.count.down.Add(int64(sent))
	return nil
}

// put stores the tensors of an order and removes those of orders before it.
func (h *Hub) put(ctx context.Context, client int, name string, body []byte) error {
	store, err := h.js.ObjectStore(ctx, h.bucket(client))
	if err != nil {
		return fmt.Errorf("objects of client %d: %w", client, err)
	}
	if old, err := store.List(ctx); err == nil {
		for _, o := range old {
			if o.Name != name {
				store.Delete(ctx, o.Name)
			}
		}
	}
	if _, err := store.PutBytes(ctx, name, body); err != nil {
		return fmt.Errorf("objects of client %d: %w", client, err)
	}
	return nil
}

// Finish tells all clients that the run is over and what the shared parameters are; each then keeps its own part. It waits
// for them until the deadline is over.
func (h *Hub) Finish(ctx context.Context, rounds int, prompts func(client int) (shared, down tensor.Map, err error)) error {
	o := engine.Order{Kind: endKind, Round: rounds, Of: h.set.Clients, Each: map[int]tensor.Map{}}
	for k := range h.set.Clients {
		shared, down, err := prompts(k)
		if err != nil {
			return err
		}
		o.Clients = append(o.Clients, k)
		o.Shared, o.Each[k] = shared, down
	}
	_, err := h.collect(ctx, o, 0, 1)
	return err
}

// pump takes replies out of their queue.
func (h *Hub) pump(ctx context.Context) error {
	cons, err := h.js.CreateOrUpdateConsumer(ctx, h.replies(), jetstream.ConsumerConfig{Durable: "server", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ackWait, MaxDeliver: -1})
	if err != nil {
		return fmt.Errorf("NATS JetStream: %w", err)
	}
	slots := make(chan struct{}, 4)
	running, err := cons.Consume(func(m jetstream.Msg) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			h.take(m)
			if err := m.Ack(); err != nil {
				h.set.Log.Debug("a reply could not be acknowledged", "error", err)
			}
		}()
	}, jetstream.PullMaxMessages(16), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if !errors.Is(err, nats.ErrConnectionClosed) {
			h.set.Log.Debug("waiting for replies", "error", err)
		}
	}))
	if err != nil {
		return fmt.Errorf("NATS JetStream: %w", err)
	}
	h.stops = append(h.stops, running.Stop)
	return nil
}

// ackWait is when an order, or a reply, is delivered again that nobody said to be at work on.
const ackWait = 6 * time.Second
