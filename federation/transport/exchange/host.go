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

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// Host is the run's connection to its members: clients (transport.Server) or workers (workers.Dispatcher).
type Host struct {
	Conn        *nats.Conn
	RunID       string // identity of the run
	InlineLimit int    // largest size of tensors inside a message, in bytes; larger ones are sent in pieces
	Largest     int
	Identity    certs.Identity
	signing     atomic.Pointer[signingKey]
	Outbox      Outbox
	Counters    counters
	decoding    chan struct{} // limits how many members' tensors are in memory at a time
	Log         *slog.Logger
	stops       []func()

	Mu  sync.Mutex
	Seq int64 // number of the newest instruction
}

// maxDecoding is how many members' tensors may be in memory as a whole at a time.
const maxDecoding = 4

// NewHost returns the host of a run. limit is the largest size of tensors inside a message, in bytes, 0 for the
// default; largest is the largest size of tensors to or from a member. Tensors larger than limit are kept in files of
// dir.
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

// OnStop registers a function that Stop calls.
func (h *Host) OnStop(do func()) { h.stops = append(h.stops, do) }

// EverySecond calls a function every second until the host stops.
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

// Decode runs a function that holds a member's tensors in memory; few run at the same time.
func (h *Host) Decode(do func()) {
	h.decoding <- struct{}{}
	defer func() { <-h.decoding }()
	do()
}

// Stage puts the encoded tensors of an instruction into the outbox, and returns their description for the header.
func (h *Host) Stage(body []byte) (out protocol.Content, err error) {
	if out.SetBody(body); len(body) > h.InlineLimit {
		out.Detach()
	}
	if len(body) > h.Largest {
		return out, fmt.Errorf("%d bytes of tensors; at most %d are possible", len(body), h.Largest)
	}
	return out, h.Outbox.Put(out.Sum, body)
}

// UseKey makes the host sign with the key of an identity, or with the key in a folder, which it makes if necessary.
func (h *Host) UseKey(who certs.Identity, dir string) (err error) {
	if h.Identity, err = who.WithKey(dir); err != nil {
		return err
	}
	return h.speak(h.Identity)
}

// signingKey returns the host's signing key and its proof.
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

// Renew makes the server sign with the key of another certificate. Members ask for it when they cannot verify an
// instruction.
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

// Subscribe subscribes to a subject until the host closes.
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

// Responds reports whether somebody answers on a subject, to the inbox of the question.
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
	m, err := sub.NextMsgWithContext(RequestContext(ctx))
	return err == nil && m.Header.Get("Status") == "", nil // status 503: there is no subscriber
}

// Respond answers a request, only under the sender's own address.
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

// Sign returns a message signed by the host.
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

// NextSeq returns the next number of an instruction. Host.Mu must be held.
func (h *Host) NextSeq() int64 {
	h.Seq = max(h.Seq+1, time.Now().UnixNano())
	return h.Seq
}

// MemberState is the host's state of a member's process. Host.Mu guards it.
type MemberState struct {
	Key           certs.Verifier
	Instance      string // of the process
	Beats         int64  // count of the newest
	try           string // attempt in its last heartbeat
	Seq           int64  // number of its newest instruction
	Seen          time.Time
	Activity      string
	Left          bool
	Lapsed        string // why its certificate is not valid any more
	Replies       int
	Up            int64
	Down          int64
	Refused       int
	askedToRejoin time.Time
	Pending       *Pending // the instruction that it must answer; nil for none
}

// SetJoined records that a process joined.
func (p *MemberState) SetJoined(instance string, key certs.Verifier) {
	if p.Instance != instance {
		p.Beats, p.try = 0, ""
	}
	p.Instance, p.Key, p.Seen, p.Left, p.Lapsed, p.Activity = instance, key, time.Now(), false, "", ""
}

// HasOtherInstance reports whether another process of this member was heard a moment ago.
func (p *MemberState) HasOtherInstance(instance string) bool {
	return p.Instance != "" && p.Instance != instance && !p.Left && time.Since(p.Seen) < PresenceTimeout
}

// PresenceTimeout is the time for which a silent member counts as present.
const PresenceTimeout = 3 * HeartbeatInterval

// Pending is an instruction to a member and the state of its reply. Host.Mu guards it.
type Pending struct {
	protocol.Instruction        // as last sent
	pushed               string // the attempt that was sent last
	at                   time.Time
	pause                time.Duration // until it may be sent again; a slow link may still be carrying it
	upload               *incoming     // tensors of a reply in pieces
	damaged              int           // damaged replies
	Most                 int64         // largest size of the reply's tensors, in bytes
	// Read decodes a reply of size bytes. keep, called after the member has its receipt, makes it count.
	Read func(r protocol.Reply, body []byte, size int) (keep func(), err error)
	// Fail reports that there is no answer. refused is why an answer was refused, or nil if the member has none.
	Fail func(why string, refused error)
}

const (
	pushPause = 1500 * time.Millisecond
	pushByte  = 20 * time.Microsecond
)

// Deliver sends the member an instruction, or repeats it as a new attempt.
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

// renewAttempt starts another attempt of an instruction. Host.Mu must be held.
func (d *Session) renewAttempt(x *Pending) {
	x.Try, x.Seq = subjects.NewID(), d.NextSeq()
	d.MemberState.Seq = x.Seq
}

// push sends an instruction. If it is lost, the member's next heartbeat does not name it, and remind sends it again.
func (d *Session) push(x *Pending) error {
	d.Mu.Lock()
	o := x.Instruction
	d.Mu.Unlock()
	var body []byte
	var err error
	if o.Object == "" {
		if body, err = d.Outbox.Read(o.Sum, 0, o.Size); err != nil {
			return err
		}
	}
	message, err := d.Sign(protocol.InstructionMessage, o, body)
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
	return d.Conn.Publish(d.Instructions(), message)
}

// redeliver sends an instruction again that the member does not have, and starts a new attempt if the member has
// finished it but its reply is missing.
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

// Idle is the activity of a member without an instruction.
const Idle = "waits"

// End ends an exchange and discards an incomplete reply. Host.Mu must be held.
func (d *Session) End(x *Pending) {
	if x != nil && d.Pending == x {
		x.upload.close()
		d.Pending = nil
	}
}

// uploadOf returns the incoming tensors of a member's reply.
func (d *Session) uploadOf(id string) *incoming {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if x := d.Pending; x != nil && x.ID == id && x.upload != nil && x.upload.id == id {
		return x.upload
	}
	return nil
}

// HeartbeatInterval is the time between two heartbeats of a member.
const HeartbeatInterval = 2 * time.Second

// counters since the host was opened.
type counters struct {
	Up, Down, Replies, Late, Refused, RefusedJoins, Repeats, Dropped atomic.Int64
}

// IsUnavailable reports whether an error comes from a NATS server that is away and may come back.
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

// DefaultLimit is the default size of tensors inside a message, DefaultLargest that of all tensors of a client, in
// bytes.
const (
	DefaultLimit   = 256 << 10
	DefaultLargest = 64 << 20
)

// RequestContext returns a context for one short request. It ends by itself.
func RequestContext(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	context.AfterFunc(ctx, cancel)
	return ctx
}
