package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
	"promptfed/runtime/tensor"
)

// take looks at one reply: it counts, or it is dropped and that is logged.
func (h *Hub) take(m jetstream.Msg) {
	client, err := h.last(m.Subject())
	if err != nil || client >= h.set.Clients {
		h.drop(client, "no such client", err)
		return
	}
	var r reply
	body, err := unpack(m.Data(), &r)
	if err == nil {
		err = r.check()
	}
	if err == nil && r.Client != client {
		err = fmt.Errorf("it speaks for client %d", r.Client)
	}
	if err != nil {
		h.damaged(client, err)
		return
	}
	o, awaited := h.awaits(client, r)
	if !awaited {
		h.count.late.Add(1)
		h.set.Log.Debug("a late or repeated reply is dropped", "client", client)
		h.discard(client, r.Object)
		return
	}
	if r.Error != "" {
		h.fail(client, r.ID, plain(r.Error))
		return
	}
	size := len(m.Data())
	if r.Object != "" {
		if body, err = h.fetch(client, r); err != nil {
			h.damaged(client, err)
			return
		}
		size += len(body)
	}
	tensors, err := r.tensors(body)
	if err != nil {
		h.damaged(client, err)
		return
	}
	answer := engine.Reply{Client: client, Stats: engine.Stats{Loss: r.Loss, Steps: r.Steps}}
	answer.Upload.Client, answer.Upload.N = client, r.N
	if r.Scores != nil {
		answer.Scores = *r.Scores
	}
	answer, err = answer.With(tensors)
	answer.Up = answer.UploadSize()
	if err == nil && o.Kind != endKind {
		err = o.Refuse(answer, h.set.Sealed)
	}
	if err == nil && o.Kind == engine.Train && !h.set.Sealed {
		err = h.bounded(o, answer)
	}
	if err != nil {
		h.fail(client, r.ID, "its reply is refused: "+plain(err.Error()))
		return
	}
	h.keep(client, r.ID, answer, size)
}

// awaits gives the order that a reply answers, where that is what the hub waits for.
func (h *Hub) awaits(client int, r reply) (engine.Order, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.now
	if c == nil || r.Run != h.set.ID || c.ids[client] != r.ID || r.ID == "" || c.failed[client] != "" {
		return engine.Order{}, false
	}
	_, got := c.got[client]
	return c.order, !got
}

// keep lets a reply count, once.
func (h *Hub) keep(client int, id string, r engine.Reply, size int) {
	h.mu.Lock()
	c := h.now
	_, got := map[int]engine.Reply(nil), false
	if c != nil {
		_, got = c.got[client]
	}
	if c == nil || c.ids[client] != id || got {
		h.mu.Unlock()
		return
	}
	r.Down = orderSize(c.order.For(client))
	c.got[client] = r
	k := &h.known[client]
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
	if c != nil && c.ids[client] == id {
		c.failed[client] = why
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
	h.mu.Lock()
	if client >= 0 && client < len(h.known) {
		h.known[client].refused++
	}
	h.mu.Unlock()
	h.count.refused.Add(1)
	h.set.Log.Warn("an upload is left out", "round", round, "client", client, "reason", plain(why.Error()))
}

// damaged drops a message that cannot be read, and gives the client its order again, a few times.
func (h *Hub) damaged(client int, err error) {
	h.count.refused.Add(1)
	h.set.Log.Warn("a message that cannot be read is dropped", "client", client, "reason", plain(err.Error()))
	h.mu.Lock()
	h.known[client].refused++
	c := h.now
	if c != nil {
		if _, got := c.got[client]; !got && c.ids[client] != "" && c.wrong[client] < 3 {
			c.wrong[client]++
			c.try, c.again[client] = NewID(), true
		}
	}
	h.mu.Unlock()
	if c != nil {
		poke(c.wake)
	}
}

func (h *Hub) drop(client int, why string, err error) {
	h.count.refused.Add(1)
	h.set.Log.Warn("a message is dropped", "client", client, "reason", why, "error", err)
}

// fetch reads the tensors of a reply from the client's objects, and removes them there.
func (h *Hub) fetch(client int, r reply) ([]byte, error) {
	if r.Size > h.set.Largest {
		return nil, fmt.Errorf("%d bytes of tensors; at most %d are taken", r.Size, h.set.Largest)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, err := h.js.ObjectStore(ctx, h.bucket(client))
	if err != nil {
		return nil, err
	}
	b, err := load(ctx, store, r.content)
	h.discard(client, r.Object)
	return b, err
}

// patience is how long bytes may take to come or go: a transfer that a lost connection cut short is not noticed otherwise.
func patience(bytes int) time.Duration {
	return 10*time.Second + time.Duration(bytes)*time.Microsecond
}

// load reads an object of a known size, and no more than that. A link, which could lead into the bucket of another client, is none.
func load(ctx context.Context, store jetstream.ObjectStore, c content) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience(c.Size))
	defer cancel()
	info, err := store.GetInfo(ctx, c.Object)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", c.Object, err)
	}
	if info.Opts != nil && info.Opts.Link != nil || info.Size != uint64(c.Size) {
		return nil, fmt.Errorf("object %s is a link, or has %d bytes and not %d", c.Object, info.Size, c.Size)
	}
	from, err := store.Get(ctx, c.Object)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", c.Object, err)
	}
	defer from.Close()
	b, err := io.ReadAll(io.LimitReader(from, int64(c.Size)+1))
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", c.Object, err)
	}
	return b, nil
}

// discard removes the object of a reply.
func (h *Hub) discard(client int, object string) {
	if object == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	store, err := h.js.ObjectStore(ctx, h.bucket(client))
	if err == nil {
		err = store.Delete(ctx, object)
	}
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		h.set.Log.Debug("an object could not be removed", "client", client, "error", err)
	}
}

// bounded refuses an upload that moved too far, or that would weigh more than the client said when it joined.
func (h *Hub) bounded(o engine.Order, r engine.Reply) error {
	h.mu.Lock()
	most := h.known[r.Client].Examples
	h.mu.Unlock()
	if r.Upload.N > most {
		return fmt.Errorf("it counts %d examples; the client joined with %d", r.Upload.N, most)
	}
	if h.set.MaxNorm <= 0 {
		return nil
	}
	if d := distance(r.Upload.Shared, o.Shared); !(d <= h.set.MaxNorm) {
		return fmt.Errorf("it moved the parameters by %.4g; at most %.4g is taken (--max-norm)", d, h.set.MaxNorm)
	}
	return nil
}

// distance is the Euclidean norm of the difference of two sets of tensors of the same names and shapes.
func distance(a, b tensor.Map) float64 {
	return norm(a.Clone().Axpy(-1, b))
}
