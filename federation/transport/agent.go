package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
)

// Part is what a client does with its orders.
type Part interface {
	// Answer does what an order asks, as engine.Worker.Answer.
	Answer(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply, *message.ClientState,
		error)
	// Finish gets the last shared parameters and what the client remembers in the end.
	Finish(o message.Instruction, s message.ClientState) error
}

// role is what an agent is for: to be a client, or to do jobs of a worker.
type role interface {
	// joined hears that the server lets the agent take part.
	joined(v verdict) error
	// mine tells why an order is not one for this agent.
	mine(o order) error
	// work computes the reply to an order. There is none where the order's tensors are not to be had any more, as when
	// the server starts anew: then the order comes again. An error ends the agent; what goes wrong in the work itself
	// is told to the server.
	work(ctx context.Context, a *Agent, j *job) (*answer, error)
}

// Agent is a member's side of a run: it joins, shows that it is there, and does one order after the other.
type Agent struct {
	*Invitation
	nc      *nats.Conn
	card    interface{ self() *introduction }
	sign    signer
	role    role
	log     *slog.Logger
	doing   atomic.Value // string
	beats   int64
	seq     int64                    // orders up to this one are old
	try     string                   // of the newest order
	dropped int                      // orders that were none
	server  atomic.Pointer[verifier] // whose orders these are; a certificate may be renewed
	asked   atomic.Int64             // when the server was asked for it, Unix seconds

	mu   sync.Mutex
	back chan struct{} // closed when the connection is back that was lost
}

// NewAgent makes the agent of a client that remembers in the folder dir.
func NewAgent(nc *nats.Conn, inv *Invitation, card Card, dir string, part Part, log *slog.Logger) (*Agent, error) {
	server := inv.key
	if inv.who.roots != nil { // the certificate says whose key it is, also when that is a new one
		server = nil
	}
	v, err := openVault(dir, inv.Run, inv.client, server)
	if err != nil {
		return nil, err
	}
	who, err := inv.who.keyed(dir)
	if err != nil {
		return nil, err
	}
	r := &clientRole{Invitation: inv, part: part, vault: v, log: log}
	if p, ok := part.(interface{ Rounds() int }); ok {
		r.rounds = p.Rounds()
	}
	return newAgent(nc, inv, who, NewID(), &card, r, log)
}

// newAgent makes an agent of a process, which signs with a key of its own.
func newAgent(nc *nats.Conn, inv *Invitation, who Identity, instance string, card interface{ self() *introduction },
	role role, log *slog.Logger) (*Agent, error) {
	p, err := who.proof()
	if err != nil {
		return nil, err
	}
	*card.self() = introduction{Run: inv.Run, Instance: instance, Client: inv.client, Proof: p}
	a := &Agent{Invitation: inv, nc: nc, card: card, sign: signer{who.key}, back: make(chan struct{}), role: role,
		log: log}
	a.doing.Store(idle)
	a.server.Store(&inv.server)
	return a, nil
}

// errRefused tells that the server lets a member not take part.
var errRefused = errors.New("the server refuses this member")

// errAgain asks to join once more.
var errAgain = errors.New("the server forgot this client")

// Run takes part until the run is over, or ctx is; in the end it says that it leaves.
func (a *Agent) Run(ctx context.Context) error {
	orders, again := make(chan *nats.Msg, 16), make(chan *nats.Msg, 1)
	for subject, to := range map[string]chan *nats.Msg{a.orders(): orders, a.again(): again} {
		sub, err := a.nc.Subscribe(subject, func(m *nats.Msg) {
			select {
			case to <- m:
			default: // the server sends it again
			}
		})
		if err != nil {
			return err
		}
		defer sub.Unsubscribe()
	}
	status := a.nc.StatusChanged(nats.CONNECTED)
	defer a.nc.RemoveStatusListener(status)
	go func() {
		for range status {
			a.mu.Lock()
			close(a.back)
			a.back = make(chan struct{})
			a.mu.Unlock()
		}
	}()
	for {
		if err := a.join(ctx); err != nil {
			return err
		}
		err := a.follow(ctx, orders, again)
		if !errors.Is(err, errAgain) {
			a.beat(true)
			a.nc.FlushTimeout(time.Second)
			return err
		}
		a.log.Warn("joining again", "reason", err)
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (a *Agent) join(ctx context.Context) error {
	for {
		me := a.card.self()
		me.Nonce = NewID()
		b, err := pack(a.sign, joinMessage, a.card, nil)
		if err != nil {
			return err
		}
		text, err := request(ctx, a.nc, a.verb(joinVerb), b, 10*time.Second, a.log)
		if err != nil {
			return err
		}
		var v verdict
		_, err = unpack(*a.server.Load(), verdictMessage, text, &v)
		if errors.Is(err, errForged) && a.who.roots != nil {
			if err = a.renewServer(ctx); err == nil {
				sleep(ctx, 250*time.Millisecond)
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("the server's answer: %w; if it began another run, start this client again", err)
		}
		if v.OK && v.Nonce == me.Nonce {
			a.seq, a.try = v.Seq, ""
			return a.role.joined(v)
		}
		if !v.OK && !v.Later {
			return fmt.Errorf("%w: %s", errRefused, plain(v.Reason))
		}
		a.log.Info("not yet", "reason", plain(v.Reason))
		if err := sleep(ctx, pulse); err != nil {
			return err
		}
	}
}

// beat says that the client is there and which order it has, or that it leaves. Nobody waits for it, so that a lost one
// is no failure.
func (a *Agent) beat(leaves bool) {
	a.beats++
	v := beat{Run: a.Invitation.Run, Client: a.client, Instance: a.card.self().Instance, Count: a.beats,
		Doing: a.doing.Load().(string), Try: a.try, Leaves: leaves}
	b, err := pack(a.sign, beatMessage, v, nil)
	if err == nil {
		a.nc.Publish(a.verb(beatVerb), b)
	}
}

// follow does orders as they come.
func (a *Agent) follow(ctx context.Context, orders, again <-chan *nats.Msg) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	a.beat(false)
	var now *job
	defer func() { now.stop() }()
	for {
		select {
		case m := <-orders:
			next := a.receive(m)
			switch {
			case next == nil:
			case now != nil && now.ID == next.ID && !now.ended(): // the same again: the newest is the one to answer
				now.take(next)
			default:
				now.stop()
				now = next
				now.start(ctx, a)
			}
		case err := <-now.over():
			done := now.Kind == endKind
			now.close()
			now = nil
			if err != nil || done {
				return err
			}
		case <-again:
			return errAgain
		case <-ticker.C:
			if a.nc.IsClosed() {
				return closed(a.nc)
			}
			if _, err := a.who.revoked.Refresh(); err != nil {
				a.log.Error("cannot read", "error", err)
			}
			a.beat(false)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// receive reads an order. What the server did not sign, or signed for another run or client, or long ago, is dropped.
func (a *Agent) receive(m *nats.Msg) *job {
	j := &job{}
	var err error
	if j.body, err = a.open(orderMessage, m.Data, &j.order); err == nil {
		err = j.order.check()
	}
	switch {
	case err != nil:
	case j.Object == "" && (len(j.body) != j.Size || sum(j.body) != j.Sum):
		err = errDamaged
	case j.order.Run != a.Invitation.Run:
		err = fmt.Errorf("it is of run %.12s", j.order.Run)
	case j.Seq <= a.seq:
		err = errors.New("a newer one was there before")
	case j.Size > a.largest:
		err = fmt.Errorf("its tensors have %d bytes; at most %d are taken", j.Size, a.largest)
	case j.Try == a.try:
		return nil
	default:
		if err = a.role.mine(j.order); err == nil {
			a.seq, a.try, j.try = j.Seq-1, j.Try, j.Try
			return j
		}
	}
	if a.dropped++; a.dropped <= 100 || a.dropped%1000 == 0 { // who sends nonsense does not fill the log
		a.log.Warn("an order is dropped", "reason", plain(err.Error()), "dropped", a.dropped)
	}
	return nil
}

// open reads a message that the server signed. One that it did not sign with the key that this member knows may be
// signed with that of a new certificate: the server is asked for it, now and then, and sends what was not taken again.
func (a *Agent) open(what string, b []byte, header any) ([]byte, error) {
	body, err := unpack(*a.server.Load(), what, b, header)
	if last, now := a.asked.Load(), time.Now().Unix(); errors.Is(err, errForged) && a.who.roots != nil &&
		now-last >= renewPause && a.asked.CompareAndSwap(last, now) {
		go func() {
			if err := a.renewServer(short(context.Background())); err != nil {
				a.log.Debug("the server's certificate is the same as far as known", "error", err)
			}
		}()
	}
	return body, err
}

// renewPause is how long a member waits before it asks for the server's certificate again, in seconds.
const renewPause = 5

// renewServer asks the server of this run for its certificate.
func (a *Agent) renewServer(ctx context.Context) error {
	inv, err := invite(ctx, a.nc, a.subjects, a.question, a.who, a.log)
	if err == nil && inv.Run != a.Invitation.Run {
		err = errors.New("the server began another run; start this again")
	}
	if err == nil {
		a.server.Store(&inv.server)
	}
	return err
}

// request asks the server. It gives up when the connection was lost meanwhile: nothing that was on its way comes any
// more.
func (a *Agent) request(ctx context.Context, patience time.Duration, verb string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a.mu.Lock()
	back := a.back
	a.mu.Unlock()
	go func() {
		select {
		case <-back:
			cancel()
		case <-ctx.Done():
		}
	}()
	m, err := a.nc.RequestWithContext(ctx, a.verb(verb), body)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// encoded is for what is not worth a signature.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // of plain structs of strings and numbers there is none
		panic(err)
	}
	return b
}
