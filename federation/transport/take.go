package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine"
)

// reply looks at one reply: it counts, or it is dropped and that is logged; or its tensors are to come first.
func (d *desk) reply(m *nats.Msg) {
	d.heavy <- struct{}{}
	defer func() { <-d.heavy }()
	var r reply
	body, err := d.open(replyMessage, m, &r)
	if errors.Is(err, errUnknown) {
		d.nc.Publish(d.again(d.client), nil)
		return
	}
	receive := func(state string, have []byte) {
		d.say(m, d.client, receiptMessage, receipt{r.ID, r.Try, state, have})
	}
	if err != nil {
		receive(repeat, nil)
		d.strange(replyMessage, err)
		return
	}
	if r.Run != d.set.ID || r.Client != d.client {
		receive(taken, nil)
		d.strange(replyMessage, fmt.Errorf("it is of client %d of run %.12s", r.Client, r.Run))
		return
	}
	o, awaited := d.awaits(d.client, r)
	if !awaited {
		d.count.late.Add(1)
		d.set.Log.Debug("a late or repeated reply is dropped", "client", d.client)
		receive(taken, nil)
		return
	}
	if r.Error != "" {
		receive(taken, nil)
		d.fail(d.client, r.ID, plain(r.Error))
		return
	}
	size := len(m.Data)
	// what is signed and awaited and yet no reply is the client's failure: nobody waits for a better one
	if err = r.check(); err == nil && r.Object != "" {
		var have []byte
		if body, have, err = d.gather(r); have != nil {
			receive(pending, have)
			return
		}
		size += len(body)
	}
	var answer engine.Reply
	if err == nil {
		answer, err = d.read(o, r, body)
	}
	if errors.Is(err, errDamaged) && d.damaged(r.ID, err) {
		receive(repeat, nil)
		return
	}
	receive(taken, nil) // before the reply counts: the server may end with it
	if err != nil {
		d.refuse(d.client, err)
		d.fail(d.client, r.ID, "its reply is refused: "+plain(err.Error()))
		return
	}
	d.keep(d.client, r.ID, answer, size)
}

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

// gather is the tensors of a reply that come in pieces, or which pieces there are if some are missing.
func (d *desk) gather(r reply) (body, have []byte, err error) {
	if r.Size > d.set.Largest {
		return nil, nil, fmt.Errorf("%d bytes of tensors; at most %d are taken", r.Size, d.set.Largest)
	}
	a, err := d.arrival(r)
	if err != nil {
		return nil, nil, err
	}
	if a.left > 0 {
		return nil, a.have, nil
	}
	defer a.close()
	body, err = a.body()
	return body, nil, err
}

// arrival is where the tensors of a reply gather. One that has all is not the hub's any more.
func (d *desk) arrival(r reply) (a *arrival, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.now
	if c == nil {
		return nil, errGone
	}
	a = c.uploads[d.client]
	if a == nil || a.id != r.ID || a.sum != r.Sum || a.size != r.Size {
		a.close()
		if a, err = newArrival(d.spool.dir, r.ID, r.content); err != nil {
			return nil, fmt.Errorf("the server has no room for it: %w", err)
		}
		c.uploads[d.client] = a
	}
	if a.left == 0 {
		delete(c.uploads, d.client)
	}
	return a, nil
}

// arriving is what a client sends in pieces in answer to an order that is out.
func (h *Hub) arriving(client int, id string) *arrival {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.now; c != nil && c.waits(client) && c.orders[client].ID == id {
		if a := c.uploads[client]; a != nil && a.id == id {
			return a
		}
	}
	return nil
}

// awaits gives the order that a reply answers, where that is what the hub waits for.
func (h *Hub) awaits(client int, r reply) (engine.Order, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.now
	if c == nil || c.orders[client].ID != r.ID || !c.waits(client) {
		return engine.Order{}, false
	}
	return c.order, true
}

// keep lets a reply count, once.
func (h *Hub) keep(client int, id string, r engine.Reply, size int) {
	h.mu.Lock()
	c := h.now
	_, got := map[int]engine.Reply(nil), false
	if c != nil {
		_, got = c.got[client]
	}
	if c == nil || c.orders[client].ID != id || got {
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
	if c != nil && c.orders[client].ID == id {
		c.failed[client] = why
		c.uploads[client].close()
		delete(c.uploads, client)
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

// maxDamaged is how often the tensors of a reply may not be those that it was signed with.
const maxDamaged = 10

// damaged notes that the tensors of a reply are not those that it was signed with, and tells whether it may come again.
func (d *desk) damaged(id string, err error) bool {
	d.strange(replyMessage, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.now
	if c == nil || c.orders[d.client].ID != id {
		return false
	}
	c.wrong[d.client]++
	return c.wrong[d.client] < maxDamaged
}
