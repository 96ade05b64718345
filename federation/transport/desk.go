package transport

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// desk is where the messages of one member are looked at, one after the other. It has a queue of its own: what a member
// sends too much is dropped there, and the others do not notice.
type desk struct {
	*host
	*peer
	subjects
	number  int    // of the client, or of the job that a worker's part of this address is for
	user    string // whose certificate it must be
	run     runner
	log     *slog.Logger // names the member
	sub     *nats.Subscription
	pace    bucket       // of all messages
	talk    bucket       // of those that cost the server more than they cost the client
	flooded atomic.Int64 // messages dropped since watch looked
	dropped int          // by sub, when watch looked
}

// runner is the run behind a desk.
type runner interface {
	// greet is what a member is told before it joins.
	greet(d *desk, q question) hello
	// join lets a member take part, or says why not.
	join(d *desk, m *nats.Msg)
	// moved hears that a member leaves, or that it is back.
	moved(d *desk, back bool)
}

func (h *host) desk(at subjects, p *peer, number int, user string, run runner, log *slog.Logger) desk {
	return desk{host: h, peer: p, subjects: at, number: number, user: user, run: run, log: log,
		pace: bucket{rate: maxRate, burst: maxRate}, talk: bucket{rate: talkRate, burst: talkBurst}}
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
	for k := range h.set.Clients {
		d := h.desk(h.client(k), &h.known[k].peer, k, UserOf(k), h, h.set.Log.With("client", k))
		h.desks = append(h.desks, &d)
	}
	for _, d := range h.desks {
		var err error
		if d.sub, err = h.on(d.verb("*"), d.handle); err != nil {
			return err
		}
		if err := d.sub.SetPendingLimits(maxQueued, 2*ahead*piece+4*(h.set.Limit+maxFrame)); err != nil {
			return err
		}
	}
	_, err := h.on(h.status(), func(m *nats.Msg) {
		if b, err := json.Marshal(h.Status()); err == nil {
			h.answer(m, h.toStatus(), b)
		}
	})
	if err != nil {
		return err
	}
	// Clients of another release, and such that are none, are told so; both have one subject for it.
	if _, err := h.on(h.oldHello("*"), func(m *nats.Msg) {
		if b, err := json.Marshal(hello{Version: Version}); err == nil {
			h.answer(m, oldInbox+m.Subject[len(h.oldHello("")):], b)
		}
	}); err != nil {
		return err
	}
	if _, err := h.on("pf."+h.run+".from.*."+helloVerb, func(m *nats.Msg) {
		if k, ok := clientOf(m.Subject); ok && k >= h.set.Clients {
			q, _ := asked(m)
			h.say(m, h.client(k).inbox, helloMessage, hello{Version: Version, Nonce: q.Nonce,
				Proof:   h.voice.Load().proof,
				Refused: fmt.Sprintf("the run has clients 0 to %d", h.set.Clients-1)})
		}
	}); err != nil {
		return err
	}
	stop := make(chan struct{})
	h.stops = append(h.stops, func() { close(stop) })
	go h.watch(stop)
	return h.nc.Flush()
}

// watch tells of clients that send more than they may, and cuts them off.
func (h *Hub) watch(stop <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		if _, err := h.who.revoked.Refresh(); err != nil {
			h.log.Error("cannot read", "error", err)
		}
		h.lapse()
		for _, d := range h.desks {
			if all, err := d.sub.Dropped(); err == nil {
				d.flooded.Add(int64(all - d.dropped))
				d.dropped = all
			}
			if d.floods() && h.set.Ban != nil {
				h.set.Ban(d.number)
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
		h.log.Warn("a client is left out", "client", k, "reason", m.lapsed)
		c := h.now
		if c == nil || !slices.Contains(c.order.Clients, k) {
			continue
		}
		if _, answered := c.got[k]; !answered {
			c.failed[k] = m.lapsed
			h.desks[k].end(m.now)
			h.count.refused.Add(1)
			poke(c.wake)
		}
	}
}

// floods tells whether the member sent more than it may since the last time.
func (d *desk) floods() bool {
	n := d.flooded.Swap(0)
	if n > 0 {
		d.count.dropped.Add(n)
		d.log.Warn("a member sends more than it may", "dropped", n)
	}
	return n > 0
}

// asked is what a question asks; without a nonce to repeat it is none.
func asked(m *nats.Msg) (q question, ok bool) {
	if strict(m.Data, &q) != nil || !hash.MatchString(q.Nonce) {
		return question{}, false
	}
	return q, true
}

// handle looks at one message.
func (d *desk) handle(m *nats.Msg) {
	time.Sleep(d.pace.wait())
	switch verb := verbOf(m.Subject); verb {
	case helloVerb, joinVerb:
		if d.talk.wait() > 0 {
			d.flooded.Add(1)
			return
		}
		if verb == joinVerb {
			d.run.join(d, m)
			return
		}
		q, _ := asked(m)
		out := d.run.greet(d, q)
		out.Version, out.Run, out.Nonce, out.Proof = Version, d.id, q.Nonce, d.voice.Load().proof
		out.Limit, out.Largest = d.limit, d.largest
		d.say(m, d.inbox, helloMessage, out)
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

// greet tells a client about the run.
func (h *Hub) greet(*desk, question) hello {
	h.mu.Lock()
	defer h.mu.Unlock()
	return hello{Clients: h.set.Clients, Config: h.set.Config, Classes: h.terms.Classes, InsecureDP: h.set.InsecureDP}
}

// open reads a message that the member signed.
func (d *desk) open(what string, m *nats.Msg, header any) ([]byte, error) {
	d.mu.Lock()
	key := d.key
	d.mu.Unlock()
	if key.key == nil {
		return nil, errUnknown
	}
	return unpack(key, what, m.Data, header)
}

var errUnknown = errors.New("the sender has not joined")

// strange counts a message that is not what it should be and drops it.
func (d *desk) strange(what string, err error) {
	d.count.dropped.Add(1)
	d.mu.Lock()
	d.refused++
	n := d.refused
	d.mu.Unlock()
	log := d.log.Debug
	if n <= 10 || n%1000 == 0 { // who sends nonsense does not fill the log
		log = d.log.Warn
	}
	log("a message is dropped", "kind", what, "reason", plain(err.Error()))
}

// recall asks the member to join again.
func (d *desk) recall() { d.nc.Publish(d.again(), nil) }

// beat hears that the member is there. One that is not known is asked to join again, and one that has not got its order
// gets it.
func (d *desk) beat(m *nats.Msg) {
	var b beat
	_, err := d.open(beatMessage, m, &b)
	if errors.Is(err, errUnknown) {
		d.recall()
		return
	}
	if err == nil && (b.Run != d.id || b.Client != d.number) {
		err = fmt.Errorf("it is of client %d of run %.12s", b.Client, b.Run)
	}
	if err != nil {
		if d.talk.wait() == 0 {
			d.recall()
		}
		d.strange(beatMessage, err)
		return
	}
	d.mu.Lock()
	if d.instance != b.Instance {
		silent := d.left || time.Since(d.seen) >= missed
		d.mu.Unlock()
		if silent && !b.Leaves {
			d.recall()
		}
		return
	}
	if b.Count <= d.beats {
		d.mu.Unlock()
		d.count.dropped.Add(1)
		return
	}
	back := d.left && !b.Leaves
	d.beats, d.seen, d.doing, d.left, d.try = b.Count, time.Now(), plain(b.Doing), b.Leaves, b.Try
	d.mu.Unlock()
	if b.Leaves {
		d.log.Info("leaves")
	} else {
		d.remind()
	}
	if b.Leaves || back {
		d.run.moved(d, back)
	}
}

// Answers to a request for a piece, or to a piece: the first byte.
const (
	pieceHere  = 'p' // the piece follows, after its CRC-32
	pieceTaken = 't'
	pieceBent  = 'b' // it came damaged
	pieceGone  = 'g' // nobody waits for it, or it is not to be had any more
)

// part gives a piece of the tensors of the member's own order.
func (d *desk) part(m *nats.Msg) {
	var a ask
	if err := strict(m.Data, &a); err != nil || !sumText.MatchString(a.Sum) || a.Piece < 0 {
		d.strange(partVerb, errors.New("it asks for no piece"))
		return
	}
	d.mu.Lock()
	mine := d.now != nil && d.now.Sum == a.Sum
	d.mu.Unlock()
	out := []byte{pieceGone}
	if size, err := d.spool.size(a.Sum); mine && err == nil && a.Piece < pieces(size) {
		from, to := bounds(size, a.Piece)
		b, err := d.spool.read(a.Sum, from, to)
		if err == nil {
			out = append(binary.LittleEndian.AppendUint32([]byte{pieceHere}, crc(b)), b...)
			d.mu.Lock()
			d.down += int64(len(out))
			d.mu.Unlock()
			d.count.down.Add(int64(len(out)))
		} else if !errors.Is(err, errGone) {
			d.log.Error("cannot read the tensors of an order", "error", err)
		}
	}
	d.answer(m, d.inbox, out)
}

// putHead is what stands before a piece of a reply: the identity of the order, the piece's number and its CRC-32.
const putHead = 32 + 4 + 4

// put takes a piece of the tensors of a reply that the member announced.
func (d *desk) put(m *nats.Msg) {
	if len(m.Data) < putHead || len(m.Data) > putHead+piece {
		d.strange(putVerb, fmt.Errorf("a piece of %d bytes", len(m.Data)))
		return
	}
	state := byte(pieceGone)
	id, n, check, b := string(m.Data[:32]), binary.LittleEndian.Uint32(m.Data[32:]),
		binary.LittleEndian.Uint32(m.Data[36:]), m.Data[putHead:]
	if a := d.arriving(id); a != nil {
		state = pieceBent
		if crc(b) == check {
			ok, err := a.take(int(n), b)
			if errors.Is(err, os.ErrClosed) {
				state = pieceGone
			} else if err != nil {
				d.log.Error("cannot keep a piece of a reply", "error", err)
			} else if ok {
				state = pieceTaken
			}
		}
	}
	d.answer(m, d.inbox, []byte{state})
}
