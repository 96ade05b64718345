package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
)

// reply looks at one reply: it counts, or it is dropped and that is logged; or its tensors are to come first.
func (d *desk) reply(m *nats.Msg) {
	d.heavy <- struct{}{}
	defer func() { <-d.heavy }()
	var r reply
	body, err := d.open(replyMessage, m, &r)
	if errors.Is(err, errUnknown) {
		d.recall()
		return
	}
	receive := func(state string, have []byte) {
		d.say(m, d.inbox, receiptMessage, receipt{r.ID, r.Try, state, have})
	}
	if err != nil {
		receive(repeat, nil)
		d.strange(replyMessage, err)
		return
	}
	x := d.awaits(r)
	if r.Run != d.id || x != nil && r.Client != x.Client {
		receive(taken, nil)
		d.strange(replyMessage, fmt.Errorf("it is of client %d of run %.12s", r.Client, r.Run))
		return
	}
	if x == nil {
		d.count.late.Add(1)
		d.log.Debug("a late or repeated reply is dropped")
		receive(taken, nil)
		return
	}
	if r.Error != "" {
		receive(taken, nil)
		x.fail(plain(r.Error), nil)
		return
	}
	size := len(m.Data)
	// what is signed and awaited and yet no reply is the client's failure: nobody waits for a better one
	if err = r.check(); err == nil && r.Object != "" {
		var have []byte
		if body, have, err = d.gather(x, r); have != nil {
			receive(pending, have)
			return
		}
		size += len(body)
	}
	var keep func()
	if err == nil {
		keep, err = x.read(r, body, size)
	}
	if errors.Is(err, errDamaged) && d.damaged(x, err) {
		receive(repeat, nil)
		return
	}
	receive(taken, nil) // before the reply counts: the server may end with it
	if err != nil {
		x.fail("its reply is refused: "+plain(err.Error()), err)
		return
	}
	keep()
}

// awaits gives the order that a reply answers, where that is what the member is to answer.
func (d *desk) awaits(r reply) *exchange {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.now; x != nil && x.ID == r.ID {
		return x
	}
	return nil
}

// gather is the tensors of a reply that come in pieces, or which pieces there are if some are missing.
func (d *desk) gather(x *exchange, r reply) (body, have []byte, err error) {
	if r.Size > d.largest {
		return nil, nil, fmt.Errorf("%d bytes of tensors; at most %d are taken", r.Size, d.largest)
	}
	a, err := d.arrival(x, r)
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

// arrival is where the tensors of a reply gather. One that has all does not belong to the exchange any more.
func (d *desk) arrival(x *exchange, r reply) (a *arrival, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now != x {
		return nil, errGone
	}
	if a = x.upload; a == nil || a.id != r.ID || a.sum != r.Sum || a.size != r.Size {
		a.close()
		x.upload = nil
		if a, err = newArrival(d.spool.dir, r.ID, r.content); err != nil {
			return nil, fmt.Errorf("the server has no room for it: %w", err)
		}
		x.upload = a
	}
	if a.left == 0 {
		x.upload = nil
	}
	return a, nil
}

// maxDamaged is how often the tensors of a reply may not be those that it was signed with.
const maxDamaged = 10

// damaged notes that the tensors of a reply are not those that it was signed with, and tells whether it may come again.
func (d *desk) damaged(x *exchange, err error) bool {
	d.strange(replyMessage, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	x.wrong++
	return d.now == x && x.wrong < maxDamaged
}

// read is a reply with its tensors, unless they are none that an order could have.
func (h *Hub) read(o message.Instruction, r reply, body []byte) (message.Reply, error) {
	answer := message.Reply{Client: r.Client, Stats: message.Stats{Loss: r.Loss, Steps: r.Steps}}
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
		err = o.Check(answer, h.set.Sealed)
	}
	if err == nil {
		err = h.bounded(o, answer)
	}
	return answer, err
}

// keep lets a reply count, once.
func (h *Hub) keep(client int, id string, r message.Reply, size int) {
	h.mu.Lock()
	c := h.now
	_, got := map[int]message.Reply(nil), false
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

// Rejected hears that the method could not do with what a client uploaded.
func (h *Hub) Rejected(round, client int, why error) {
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
	h.limited.Refused = append(h.limited.Refused, message.Refusal{Client: client, Reason: reason})
}
