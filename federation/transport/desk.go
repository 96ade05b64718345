package transport

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// desk is where the messages of one client are looked at, one after the other. It has a queue of its own: what a client
// sends too much is dropped there, and the others do not notice.
type desk struct {
	*Hub
	client  int
	sub     *nats.Subscription
	pace    bucket       // of all messages
	talk    bucket       // of those that cost the server more than they cost the client
	flooded atomic.Int64 // messages dropped since watch looked
	dropped int          // by sub, when watch looked
}

// bucket lets some events through a second, and a burst.
type bucket struct {
	rate, burst, level float64
	at                 time.Time
}

// wait is how long the next event must wait.
func (b *bucket) wait() time.Duration {
	now := time.Now()
	if b.at.IsZero() {
		b.level = b.burst
	} else {
		b.level = min(b.burst, b.level+b.rate*now.Sub(b.at).Seconds())
	}
	b.at = now
	if b.level >= 1 {
		b.level--
		return 0
	}
	return time.Duration((1 - b.level) / b.rate * float64(time.Second))
}

// What a client may send. An honest one has few messages on their way, so that its queue never fills.
const (
	maxQueued = 64   // messages that nobody looked at yet; more are dropped
	maxRate   = 4000 // messages a second; more wait
	talkRate  = 2    // requests to join and the like a second; more are dropped
	talkBurst = 20
)

// listen answers clients.
func (h *Hub) listen() error {
	on := func(subject string, do nats.MsgHandler) (*nats.Subscription, error) {
		s, err := h.nc.Subscribe(subject, do)
		if err == nil {
			h.stops = append(h.stops, func() { s.Unsubscribe() })
		}
		return s, err
	}
	var desks []*desk
	for k := range h.set.Clients {
		d := &desk{Hub: h, client: k, pace: bucket{rate: maxRate, burst: maxRate}, talk: bucket{rate: talkRate,
			burst: talkBurst}}
		var err error
		if d.sub, err = on(h.from(k, "*"), d.handle); err != nil {
			return err
		}
		if err := d.sub.SetPendingLimits(maxQueued, 2*ahead*piece+4*(h.set.Limit+maxFrame)); err != nil {
			return err
		}
		desks = append(desks, d)
	}
	_, err := on(h.status(), func(m *nats.Msg) {
		if b, err := json.Marshal(h.Status()); err == nil {
			h.answer(m, h.toStatus(), b)
		}
	})
	if err != nil {
		return err
	}
	// Clients of another release, and such that are none, are told so; both have one subject for it.
	if _, err := on(h.oldHello("*"), func(m *nats.Msg) {
		if b, err := json.Marshal(hello{Version: Version}); err == nil {
			h.answer(m, oldInbox+m.Subject[len(h.oldHello("")):], b)
		}
	}); err != nil {
		return err
	}
	if _, err := on("pf."+h.run+".from.*."+helloVerb, func(m *nats.Msg) {
		k, _, err := h.sender(m.Subject)
		if err == nil && k >= h.set.Clients {
			h.say(m, k, helloMessage, hello{Version: Version, Nonce: nonce(m), Proof: h.voice.Load().proof,
				Refused: fmt.Sprintf("the run has clients 0 to %d", h.set.Clients-1)})
		}
	}); err != nil {
		return err
	}
	stop := make(chan struct{})
	h.stops = append(h.stops, func() { close(stop) })
	go h.watch(desks, stop)
	return h.nc.Flush()
}

// watch tells of clients that send more than they may, and cuts them off.
func (h *Hub) watch(desks []*desk, stop <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		if _, err := h.set.Identity.revoked.Refresh(); err != nil {
			h.set.Log.Error("cannot read", "error", err)
		}
		h.lapse()
		for _, d := range desks {
			n := d.flooded.Swap(0)
			if all, err := d.sub.Dropped(); err == nil {
				n += int64(all - d.dropped)
				d.dropped = all
			}
			if n == 0 {
				continue
			}
			h.count.dropped.Add(n)
			h.set.Log.Warn("a client sends more than it may", "client", d.client, "dropped", n)
			if h.set.Ban != nil {
				h.set.Ban(d.client)
			}
		}
	}
}

// lapse leaves out the clients whose certificates were revoked or expired: what they signed counts no longer, and
// nobody waits for them until they join with others.
func (h *Hub) lapse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.known {
		m := &h.known[k]
		err := m.key.current()
		if err == nil || m.lapsed != "" {
			continue
		}
		m.lapsed, m.left = err.Error(), true
		h.set.Log.Warn("a client is left out", "client", k, "reason", m.lapsed)
		c := h.now
		if c == nil || !slices.Contains(c.order.Clients, k) {
			continue
		}
		if _, answered := c.got[k]; !answered {
			c.fail(k, m.lapsed)
			h.count.refused.Add(1)
			poke(c.wake)
		}
	}
}

// answer answers a request, at no other place than its sender's own.
func (h *Hub) answer(m *nats.Msg, place string, b []byte) {
	if m.Reply == "" {
		return
	}
	if !within(m.Reply, place) {
		h.count.dropped.Add(1)
		h.set.Log.Debug("a request wants its answer elsewhere", "subject", m.Subject)
		return
	}
	if err := h.nc.Publish(m.Reply, b); err != nil {
		h.set.Log.Debug("cannot answer", "subject", m.Subject, "error", err)
	}
}

// say answers a client with a signed message.
func (h *Hub) say(m *nats.Msg, client int, what string, v any) {
	b, err := pack(h.voice.Load().signer, what, v, nil)
	if err != nil {
		h.set.Log.Error("cannot answer", "subject", m.Subject, "error", err)
		return
	}
	h.answer(m, h.to(client), b)
}

// nonce is what a question wants to find in its answer.
func nonce(m *nats.Msg) string {
	var q question
	if strict(m.Data, &q) != nil || !hash.MatchString(q.Nonce) {
		return ""
	}
	return q.Nonce
}

// handle looks at one message.
func (d *desk) handle(m *nats.Msg) {
	time.Sleep(d.pace.wait())
	_, verb, err := d.sender(m.Subject)
	if err != nil {
		return
	}
	switch verb {
	case helloVerb, joinVerb:
		if d.talk.wait() > 0 {
			d.flooded.Add(1)
			return
		}
		if verb == joinVerb {
			d.join(m)
			return
		}
		h := d.Hub
		h.mu.Lock()
		classes := h.terms.Classes
		h.mu.Unlock()
		d.say(m, d.client, helloMessage, hello{Version: Version, Run: h.set.ID, Nonce: nonce(m), Clients: h.set.Clients,
			Limit: h.set.Limit, Largest: h.set.Largest, Config: h.set.Config, Classes: classes, Proof: h.voice.Load().proof,
			InsecureDP: h.set.InsecureDP})
	case beatVerb:
		d.beat(m)
	case partVerb:
		d.part(m)
	case replyVerb:
		d.reply(m)
	case putVerb:
		d.put(m)
	}
}

// open reads a message that the client signed.
func (d *desk) open(what string, m *nats.Msg, header any) ([]byte, error) {
	d.mu.Lock()
	key := d.known[d.client].key
	d.mu.Unlock()
	if key.key == nil {
		return nil, errUnknown
	}
	return unpack(key, what, m.Data, header)
}

var errUnknown = errors.New("the client has not joined")

// strange counts a message that is not what it should be and drops it.
func (d *desk) strange(what string, err error) {
	d.count.dropped.Add(1)
	d.mu.Lock()
	d.known[d.client].refused++
	n := d.known[d.client].refused
	d.mu.Unlock()
	log := d.set.Log.Debug
	if n <= 10 || n%1000 == 0 { // who sends nonsense does not fill the log
		log = d.set.Log.Warn
	}
	log("a message is dropped", "client", d.client, "kind", what, "reason", plain(err.Error()))
}

// beat hears that the client is there. One that is not known is asked to join again, and one that has not got its order
// gets it.
func (d *desk) beat(m *nats.Msg) {
	var b beat
	_, err := d.open(beatMessage, m, &b)
	if errors.Is(err, errUnknown) {
		d.nc.Publish(d.again(d.client), nil)
		return
	}
	if err == nil && (b.Run != d.set.ID || b.Client != d.client) {
		err = fmt.Errorf("it is of client %d of run %.12s", b.Client, b.Run)
	}
	if err != nil {
		if d.talk.wait() == 0 {
			d.nc.Publish(d.again(d.client), nil)
		}
		d.strange(beatMessage, err)
		return
	}
	d.mu.Lock()
	k := &d.known[d.client]
	if k.Instance != b.Instance {
		silent := k.left || time.Since(k.seen) >= 3*pulse
		d.mu.Unlock()
		if silent && !b.Leaves {
			d.nc.Publish(d.again(d.client), nil)
		}
		return
	}
	if b.Count <= k.beats {
		d.mu.Unlock()
		d.count.dropped.Add(1)
		return
	}
	back := k.left && !b.Leaves
	k.beats, k.seen, k.doing, k.left, k.try = b.Count, time.Now(), plain(b.Doing), b.Leaves, b.Try
	d.mu.Unlock()
	if b.Leaves {
		d.set.Log.Info("leaves", "client", d.client)
	} else {
		d.remind(d.client)
	}
	if b.Leaves || back {
		d.wake(d.client, back)
	}
}

// Answers to a request for a piece, or to a piece: the first byte.
const (
	pieceHere  = 'p' // the piece follows, after its CRC-32
	pieceTaken = 't'
	pieceBent  = 'b' // it came damaged
	pieceGone  = 'g' // nobody waits for it, or it is not to be had any more
)

// part gives a piece of the tensors of the client's own order.
func (d *desk) part(m *nats.Msg) {
	var a ask
	if err := strict(m.Data, &a); err != nil || !sumText.MatchString(a.Sum) || a.Piece < 0 {
		d.strange(partVerb, errors.New("it asks for no piece"))
		return
	}
	d.mu.Lock()
	mine := d.now != nil && d.now.orders[d.client].Sum == a.Sum
	d.mu.Unlock()
	out := []byte{pieceGone}
	if size, err := d.spool.size(a.Sum); mine && err == nil && a.Piece < pieces(size) {
		from, to := bounds(size, a.Piece)
		b, err := d.spool.read(a.Sum, from, to)
		if err == nil {
			out = append(binary.LittleEndian.AppendUint32([]byte{pieceHere}, crc(b)), b...)
			d.mu.Lock()
			d.known[d.client].down += int64(len(out))
			d.mu.Unlock()
			d.count.down.Add(int64(len(out)))
		} else if !errors.Is(err, errGone) {
			d.set.Log.Error("cannot read the tensors of an order", "error", err)
		}
	}
	d.answer(m, d.to(d.client), out)
}

// putHead is what stands before a piece of a reply: the identity of the order, the piece's number and its CRC-32.
const putHead = 32 + 4 + 4

// put takes a piece of the tensors of a reply that the client announced.
func (d *desk) put(m *nats.Msg) {
	if len(m.Data) < putHead || len(m.Data) > putHead+piece {
		d.strange(putVerb, fmt.Errorf("a piece of %d bytes", len(m.Data)))
		return
	}
	state := byte(pieceGone)
	id, n, check, b := string(m.Data[:32]), binary.LittleEndian.Uint32(m.Data[32:]),
		binary.LittleEndian.Uint32(m.Data[36:]), m.Data[putHead:]
	if a := d.arriving(d.client, id); a != nil {
		state = pieceBent
		if crc(b) == check {
			ok, err := a.take(int(n), b)
			if errors.Is(err, os.ErrClosed) {
				state = pieceGone
			} else if err != nil {
				d.set.Log.Error("cannot keep a piece of a reply", "client", d.client, "error", err)
			} else if ok {
				state = pieceTaken
			}
		}
	}
	d.answer(m, d.to(d.client), []byte{state})
}
