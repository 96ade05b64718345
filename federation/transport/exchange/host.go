package exchange

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// Host is what a run needs to talk to members: to clients (transport.Server), or to workers that
// do the clients' part (workers.Dispatcher).
type Host struct {
	Conn        *nats.Conn
	RunID       string // of the run
	InlineLimit int    // bytes of tensors that travel in a message; more go in pieces
	Largest     int
	Identity    certs.Identity
	signing     atomic.Pointer[signingKey]
	Outbox      Outbox
	Counters    counters
	decoding    chan struct{} // bounds how many members' tensors are whole in memory at a time
	Log         *slog.Logger
	stops       []func()

	Mu  sync.Mutex
	Seq int64 // of the newest order
}

// maxDecoding is how many members' tensors may be whole in memory at a time.
const maxDecoding = 4

// NewHost makes the host of a run. limit is how many bytes of tensors travel in a message, 0 for the default, and
// largest how many are taken from a member or given to one at most; more than limit lie in dir on their way.
func NewHost(nc *nats.Conn, run string, limit, largest int, dir string, log *slog.Logger) *Host {
	most := int(nc.MaxPayload()) - protocol.MaxFrame
	if limit <= 0 || limit > most {
		limit = min(DefaultLimit, most)
	}
	h := &Host{Conn: nc, RunID: run, InlineLimit: limit, Largest: largest, Log: log,
		Outbox: Outbox{Dir: dir, InMemory: limit}, decoding: make(chan struct{}, maxDecoding)}
	h.OnStop(h.Outbox.Clear)
	return h
}

// OnStop has something done when the host stops.
func (h *Host) OnStop(do func()) { h.stops = append(h.stops, do) }

// EverySecond does something again and again until the host stops.
func (h *Host) EverySecond(do func()) {
	over, t := make(chan struct{}), time.NewTicker(time.Second)
	h.OnStop(func() { close(over) })
	go func() {
		defer t.Stop()
		for {
			select {
			case <-over:
				return
			case <-t.C:
				do()
			}
		}
	}()
}

// Decode does what needs a member's tensors whole in memory, for few members at a time.
func (h *Host) Decode(do func()) {
	h.decoding <- struct{}{}
	defer func() { <-h.decoding }()
	do()
}

// Stage puts the encoded tensors of an order into the outbox, and gives what its header says of them.
func (h *Host) Stage(body []byte) (out protocol.Content, err error) {
	if out.SetBody(body); len(body) > h.InlineLimit {
		out.Detach()
	}
	if len(body) > h.Largest {
		return out, fmt.Errorf("%d bytes of tensors; at most %d are possible", len(body), h.Largest)
	}
	return out, h.Outbox.Put(out.Sum, body)
}

// UseKey makes the host sign with the key of an identity, or with one that is in a folder or made there.
func (h *Host) UseKey(who certs.Identity, dir string) (err error) {
	if h.Identity, err = who.WithKey(dir); err != nil {
		return err
	}
	return h.speak(h.Identity)
}

// signingKey is the key that the host signs with, and its proof.
type signingKey struct {
	certs.Signer
	Proof certs.Proof
}

func (h *Host) speak(who certs.Identity) error {
	p, err := who.Proof()
	if err == nil {
		h.signing.Store(&signingKey{who.Signer, p})
	}
	return err
}

// Renew makes the server sign with the key of another certificate from now on. Members ask for it when they see orders
// that they cannot verify.
func (h *Host) Renew(who certs.Identity) error {
	if who.Key == nil || !h.Identity.Certified() {
		return errors.New("only a certificate can be renewed")
	}
	p, err := who.Proof()
	if err == nil {
		_, err = h.Identity.VerifierOf(p, certs.ServerName, nil)
	}
	if err != nil {
		return err
	}
	return h.speak(who)
}

// Subscribe hears a subject until the host closes.
func (h *Host) Subscribe(subject string, do nats.MsgHandler) (*nats.Subscription, error) {
	s, err := h.Conn.Subscribe(subject, do)
	if err == nil {
		h.OnStop(func() { s.Unsubscribe() })
	}
	return s, err
}

// Stop stops answering.
func (h *Host) Stop() {
	h.Conn.FlushTimeout(time.Second) // the last receipts
	for _, stop := range h.stops {
		stop()
	}
	h.stops = nil
}

// Responds tells whether somebody answers at a subject, to the inbox that the question is asked from.
func Responds(ctx context.Context, nc *nats.Conn, subject, inbox string) (bool, error) {
	inbox += "." + subjects.NewID()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer sub.Unsubscribe()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		return false, err
	}
	m, err := sub.NextMsgWithContext(BriefContext(ctx))
	return err == nil && m.Header.Get("Status") == "", nil // 503 says that nobody listens
}

// Respond answers a request, at no other place than its sender's own.
func (h *Host) Respond(m *nats.Msg, inbox string, b []byte) {
	if m.Reply == "" {
		return
	}
	if !subjects.Within(m.Reply, inbox) {
		h.Counters.Dropped.Add(1)
		h.Log.Debug("a request asks for its answer on a foreign subject", "subject", m.Subject)
		return
	}
	if err := h.Conn.Publish(m.Reply, b); err != nil {
		h.Log.Debug("cannot answer", "subject", m.Subject, "error", err)
	}
}

// Sign makes a message that the host signs.
func (h *Host) Sign(what string, header any, body []byte) ([]byte, error) {
	return protocol.Pack(h.signing.Load().Signer, what, header, body)
}

// RespondHello answers a member's first question.
func (h *Host) RespondHello(m *nats.Msg, inbox string, out protocol.HelloReply) {
	out.Version, out.Question = protocol.Version, protocol.Question(m.Subject, m.Data)
	out.Proof = h.signing.Load().Proof
	h.RespondSigned(m, inbox, protocol.HelloMessage, out)
}

// RespondSigned answers a member with a signed message.
func (h *Host) RespondSigned(m *nats.Msg, inbox, what string, v any) {
	b, err := h.Sign(what, v, nil)
	if err != nil {
		h.Log.Error("cannot answer", "subject", m.Subject, "error", err)
		return
	}
	h.Respond(m, inbox, b)
}

// NextSeq numbers an order. Host.Mu must be held.
func (h *Host) NextSeq() int64 {
	h.Seq = max(h.Seq+1, time.Now().UnixNano())
	return h.Seq
}

// MemberState is what a host knows of a member's process. Host.Mu guards it.
type MemberState struct {
	Key           certs.Verifier
	Instance      string // of the process
	Beats         int64  // count of the newest
	try           string // of the order that it says to have
	Seq           int64  // of the newest order that it was given
	Seen          time.Time
	Activity      string
	Left          bool
	Lapsed        string // why its certificate does not count any longer
	Replies       int
	Up            int64
	Down          int64
	Refused       int
	askedToRejoin time.Time
	Pending       *Pending // the order that it is to answer; nil for none
}

// SetJoined notes that a process joined.
func (p *MemberState) SetJoined(instance string, key certs.Verifier) {
	if p.Instance != instance {
		p.Beats, p.try = 0, ""
	}
	p.Instance, p.Key, p.Seen, p.Left, p.Lapsed, p.Activity = instance, key, time.Now(), false, "", ""
}

// AliveAsAnother tells whether another process than this one was there a moment ago.
func (p *MemberState) AliveAsAnother(instance string) bool {
	return p.Instance != "" && p.Instance != instance && !p.Left && time.Since(p.Seen) < PresenceTimeout
}

// PresenceTimeout is how long a member that said nothing is taken to be there.
const PresenceTimeout = 3 * HeartbeatInterval

// Pending is an order that a member has, and what came of its reply so far. Host.Mu guards it.
type Pending struct {
	protocol.Order        // as sent last
	pushed         string // the attempt that was sent last
	at             time.Time
	pause          time.Duration // until it may be sent again: a slow link may have it still
	upload         *incoming     // tensors of a reply that is coming in pieces
	damaged        int           // damaged replies
	Most           int64         // bytes that the tensors of its reply can have
	// Read takes a reply apart; keep, called once the member has its receipt, lets it count. size is that of all of the
	// message.
	Read func(r protocol.Reply, body []byte, size int) (keep func(), err error)
	// Fail tells that there is no answer; refused is why the one that came is none, nil where the member has none.
	Fail func(why string, refused error)
}

const (
	pushPause = 1500 * time.Millisecond
	pushByte  = 20 * time.Microsecond
)

// Deliver gives the member an order, or the same one anew.
func (d *Session) Deliver(x *Pending) error {
	d.Mu.Lock()
	if old := d.Pending; old != nil && old.ID == x.ID {
		x.upload, x.damaged = old.upload, old.damaged
	} else if old != nil {
		old.upload.close()
	}
	d.Pending = x
	d.renewAttempt(x)
	d.Mu.Unlock()
	return d.push(x)
}

// renewAttempt makes another attempt of an order. Host.Mu must be held.
func (d *Session) renewAttempt(x *Pending) {
	x.Try, x.Seq = subjects.NewID(), d.NextSeq()
	d.MemberState.Seq = x.Seq
}

// push sends an order. It may get lost; then the member's next sign of life says that it has not got it, and remind
// sends it again.
func (d *Session) push(x *Pending) error {
	d.Mu.Lock()
	o := x.Order
	d.Mu.Unlock()
	var body []byte
	var err error
	if o.Object == "" {
		if body, err = d.Outbox.Read(o.Sum, 0, o.Size); err != nil {
			return err
		}
	}
	message, err := d.Sign(protocol.OrderMessage, o, body)
	if err != nil {
		return err
	}
	d.Mu.Lock()
	if x.pushed != o.Try {
		x.pushed, x.pause = o.Try, pushPause+time.Duration(len(message))*pushByte
	} else {
		x.pause = min(2*x.pause, time.Minute)
	}
	x.at = time.Now()
	d.Down += int64(len(message))
	d.Mu.Unlock()
	d.Counters.Down.Add(int64(len(message)))
	return d.Conn.Publish(d.Orders(), message)
}

// redeliver sends a member its order again that it has not got, and gives it anew where it was done and its reply is
// not here.
func (d *Session) redeliver() {
	d.Mu.Lock()
	x := d.Pending
	if x == nil || time.Since(x.at) < x.pause || d.try == x.Try && d.Activity != Idle {
		d.Mu.Unlock()
		return
	}
	if d.try == x.Try {
		d.renewAttempt(x)
	}
	d.Mu.Unlock()
	if err := d.push(x); err != nil {
		d.Log.Debug("an instruction could not be sent again", "error", err)
	}
}

// Idle is what a member does that has no order to do.
const Idle = "waits"

// End closes an exchange; what came of a reply goes. Host.Mu must be held.
func (d *Session) End(x *Pending) {
	if x != nil && d.Pending == x {
		x.upload.close()
		d.Pending = nil
	}
}

// uploadOf is what a member sends in pieces in answer to its order.
func (d *Session) uploadOf(id string) *incoming {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if x := d.Pending; x != nil && x.ID == id && x.upload != nil && x.upload.id == id {
		return x.upload
	}
	return nil
}

// HeartbeatInterval is how often a client says that it is there.
const HeartbeatInterval = 2 * time.Second

// counters of a host since it was opened.
type counters struct {
	Up, Down, Replies, Late, Refused, RefusedJoins, Repeats, Dropped atomic.Int64
}

// IsUnavailable tells whether an error is one of a NATS server that is away, and may come back.
func IsUnavailable(err error) bool {
	for _, e := range []error{nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionReconnecting,
		nats.ErrReconnectBufExceeded, nats.ErrDisconnected, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func Notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// DefaultLimit is how many bytes of tensors travel in a message, and DefaultLargest how many are taken of a client.
const (
	DefaultLimit   = 256 << 10
	DefaultLargest = 64 << 20
)

// BriefContext is a context for one quick question. It ends by itself.
func BriefContext(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	context.AfterFunc(ctx, cancel)
	return ctx
}
