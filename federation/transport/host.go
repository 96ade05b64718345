package transport

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// host is what a run needs to talk to members: to clients (Hub), or to workers that do the clients' part (Dispatcher).
type host struct {
	nc      *nats.Conn
	id      string // of the run
	limit   int    // as Settings.Limit
	largest int
	who     Identity
	voice   atomic.Pointer[voice]
	spool   spool
	count   counters
	heavy   chan struct{} // bounds how many members' tensors are whole in memory at a time
	log     *slog.Logger
	stops   []func()

	mu  sync.Mutex
	seq int64 // of the newest order
}

// heavyMost is what may go through host.heavy.
const heavyMost = 4

// keyed makes the host sign with the key of an identity, or with one that is in a folder or made there.
func (h *host) keyed(who Identity, dir string) (err error) {
	if h.who, err = who.keyed(dir); err != nil {
		return err
	}
	return h.speak(h.who)
}

// voice is the key that the host signs with, and its proof.
type voice struct {
	signer
	proof proof
}

func (h *host) speak(who Identity) error {
	p, err := who.proof()
	if err == nil {
		h.voice.Store(&voice{signer{who.key}, p})
	}
	return err
}

// Renew makes the server sign with the key of another certificate from now on. Members ask for it when they see orders
// that they cannot verify.
func (h *host) Renew(who Identity) error {
	if who.key == nil || !h.who.certified() {
		return errors.New("only a certificate can be renewed")
	}
	p, err := who.proof()
	if err == nil {
		_, err = h.who.known(p, ServerName, nil)
	}
	if err != nil {
		return err
	}
	return h.speak(who)
}

// on hears a subject until the host closes.
func (h *host) on(subject string, do nats.MsgHandler) (*nats.Subscription, error) {
	s, err := h.nc.Subscribe(subject, do)
	if err == nil {
		h.stops = append(h.stops, func() { s.Unsubscribe() })
	}
	return s, err
}

// stop stops answering.
func (h *host) stop() {
	h.nc.FlushTimeout(time.Second) // the last receipts
	for _, stop := range h.stops {
		stop()
	}
	h.stops = nil
}

// responds tells whether somebody answers at a subject, to the inbox that the question is asked from.
func responds(ctx context.Context, nc *nats.Conn, subject, inbox string) (bool, error) {
	inbox += "." + NewID()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer sub.Unsubscribe()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		return false, err
	}
	m, err := sub.NextMsgWithContext(short(ctx))
	return err == nil && m.Header.Get("Status") == "", nil // 503 says that nobody listens
}

// answer answers a request, at no other place than its sender's own.
func (h *host) answer(m *nats.Msg, inbox string, b []byte) {
	if m.Reply == "" {
		return
	}
	if !within(m.Reply, inbox) {
		h.count.dropped.Add(1)
		h.log.Debug("a request wants its answer elsewhere", "subject", m.Subject)
		return
	}
	if err := h.nc.Publish(m.Reply, b); err != nil {
		h.log.Debug("cannot answer", "subject", m.Subject, "error", err)
	}
}

// say answers a member with a signed message.
func (h *host) say(m *nats.Msg, inbox, what string, v any) {
	b, err := pack(h.voice.Load().signer, what, v, nil)
	if err != nil {
		h.log.Error("cannot answer", "subject", m.Subject, "error", err)
		return
	}
	h.answer(m, inbox, b)
}

// next numbers an order. host.mu must be held.
func (h *host) next() int64 {
	h.seq = max(h.seq+1, time.Now().UnixNano())
	return h.seq
}

// peer is what a host knows of a member's process. host.mu guards it.
type peer struct {
	key      verifier
	instance string // of the process
	beats    int64  // count of the newest
	try      string // of the order that it says to have
	seq      int64  // of the newest order that it was given
	seen     time.Time
	doing    string
	left     bool
	lapsed   string // why its certificate does not count any longer
	replies  int
	up       int64
	down     int64
	refused  int
	now      *exchange // the order that it is to answer; nil for none
}

// joins notes that a process joined.
func (p *peer) joins(instance string, key verifier) {
	if p.instance != instance {
		p.beats, p.try = 0, ""
	}
	p.instance, p.key, p.seen, p.left, p.lapsed, p.doing = instance, key, time.Now(), false, "", ""
}

// there tells whether another process than this one was there a moment ago.
func (p *peer) there(instance string) bool {
	return p.instance != "" && p.instance != instance && !p.left && time.Since(p.seen) < missed
}

// missed is how long a member that said nothing is taken to be there.
const missed = 3 * pulse

// exchange is an order that a member has, and what came of its reply so far. host.mu guards it.
type exchange struct {
	order         // as it was given last
	pushed string // the attempt that was sent last
	at     time.Time
	pause  time.Duration // until it may be sent again: a slow link may have it still
	upload *arrival      // tensors of a reply that is coming in pieces
	wrong  int           // damaged replies
	// read takes a reply apart; keep, called once the member was told, lets it count. size is that of all of the
	// message.
	read func(r reply, body []byte, size int) (keep func(), err error)
	// fail tells that there is no answer; refused is why the one that came is none, nil where the member has none.
	fail func(why string, refused error)
}

const (
	pushPause = 1500 * time.Millisecond
	pushByte  = 20 * time.Microsecond
)

// begin gives the member an order, or the same one anew.
func (d *desk) begin(x *exchange) error {
	d.mu.Lock()
	if old := d.now; old != nil && old.ID == x.ID {
		x.upload, x.wrong = old.upload, old.wrong
	} else if old != nil {
		old.upload.close()
	}
	d.now = x
	d.renew(x)
	d.mu.Unlock()
	return d.push(x)
}

// renew makes another attempt of an order. host.mu must be held.
func (d *desk) renew(x *exchange) {
	x.Try, x.Seq = NewID(), d.next()
	d.peer.seq = x.Seq
}

// push sends an order. It may get lost; then the member's next sign of life says that it has not got it, and remind
// sends it again.
func (d *desk) push(x *exchange) error {
	d.mu.Lock()
	o := x.order
	d.mu.Unlock()
	var body []byte
	var err error
	if o.Object == "" {
		if body, err = d.spool.read(o.Sum, 0, o.Size); err != nil {
			return err
		}
	}
	message, err := pack(d.voice.Load().signer, orderMessage, o, body)
	if err != nil {
		return err
	}
	d.mu.Lock()
	if x.pushed != o.Try {
		x.pushed, x.pause = o.Try, pushPause+time.Duration(len(message))*pushByte
	} else {
		x.pause = min(2*x.pause, time.Minute)
	}
	x.at = time.Now()
	d.down += int64(len(message))
	d.mu.Unlock()
	d.count.down.Add(int64(len(message)))
	return d.nc.Publish(d.orders(), message)
}

// remind sends a member its order again that it has not got, and gives it anew where it was done and its reply is not
// here.
func (d *desk) remind() {
	d.mu.Lock()
	x := d.now
	if x == nil || time.Since(x.at) < x.pause || d.try == x.Try && d.doing != idle {
		d.mu.Unlock()
		return
	}
	if d.try == x.Try {
		d.renew(x)
	}
	d.mu.Unlock()
	if err := d.push(x); err != nil {
		d.log.Debug("an order could not be sent again", "error", err)
	}
}

// idle is what a member does that has no order to do.
const idle = "waits"

// end closes an exchange; what came of a reply goes. host.mu must be held.
func (d *desk) end(x *exchange) {
	if x != nil && d.now == x {
		x.upload.close()
		d.now = nil
	}
}

// arriving is what a member sends in pieces in answer to its order.
func (d *desk) arriving(id string) *arrival {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.now; x != nil && x.ID == id && x.upload != nil && x.upload.id == id {
		return x.upload
	}
	return nil
}

// pulse is how often a client says that it is there.
const pulse = 2 * time.Second

// counters of a hub since it was opened.
type counters struct {
	up, down, replies, late, refused, refusedJoins, repeats, dropped atomic.Int64
}

// natsAway tells whether an error is one of a NATS server that is away, and may come back.
func natsAway(err error) bool {
	for _, e := range []error{nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionReconnecting,
		nats.ErrReconnectBufExceeded, nats.ErrDisconnected, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Defaults of Settings.
const (
	DefaultLimit   = 256 << 10
	DefaultLargest = 64 << 20
)

// short is a context for one quick question. It ends by itself.
func short(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	context.AfterFunc(ctx, cancel)
	return ctx
}
