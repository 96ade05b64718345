package exchange

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

	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// Role is what a member of a run is for: to be one of its clients, or to do jobs of a worker.
type Role interface {
	// Joined hears that the server lets the member take part.
	Joined(v protocol.JoinReply) error
	// Accepts tells why an order is not one for this member.
	Accepts(o protocol.Order) error
	// Execute computes the reply to an order. There is none where the order's tensors are gone, as when the server
	// starts anew: then the order comes again. An error ends the client; what goes wrong in the work itself is reported
	// to the server.
	Execute(ctx context.Context, a *Client, j *ActiveOrder) (*PreparedReply, error)
}

// Client is a member's side of a run: it joins, shows that it is there, and does one order after the other.
type Client struct {
	*Invitation
	nc         *nats.Conn
	join       protocol.Joining
	signer     certs.Signer
	role       Role
	log        *slog.Logger
	activity   atomic.Value // string
	heartbeats int64
	seq        int64                          // orders up to this one are old
	try        string                         // of the newest order
	dropped    int                            // orders that were none
	server     atomic.Pointer[certs.Verifier] // whose orders these are; a certificate may be renewed
	asked      atomic.Int64                   // when the server was asked for it, Unix seconds

	mu          sync.Mutex
	reconnected chan struct{} // closed when the connection is back that was lost
}

// NewClient makes the client of a process, which signs with a key of its own.
func NewClient(nc *nats.Conn, inv *Invitation, who certs.Identity, instance string, request protocol.Joining,
	role Role, log *slog.Logger) (*Client, error) {
	p, err := who.Proof()
	if err != nil {
		return nil, err
	}
	*request.Header() = protocol.JoinHeader{Run: inv.Run, Instance: instance, Client: inv.Client, Proof: p}
	a := &Client{Invitation: inv, nc: nc, join: request, signer: who.Signer, reconnected: make(chan struct{}),
		role: role, log: log}
	a.activity.Store(Idle)
	a.server.Store(&inv.server)
	return a, nil
}

// errRefused tells that the server lets a member not take part.
var errRefused = errors.New("the server refuses this client or worker")

// errAgain asks to join once more.
var errAgain = errors.New("the server does not know this client")

// Run takes part until the run is over, or ctx is; in the end it says that it leaves.
func (a *Client) Run(ctx context.Context) error {
	orders, again := make(chan *nats.Msg, 16), make(chan *nats.Msg, 1)
	for subject, to := range map[string]chan *nats.Msg{a.Orders(): orders, a.Rejoin(): again} {
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
			close(a.reconnected)
			a.reconnected = make(chan struct{})
			a.mu.Unlock()
		}
	}()
	for {
		if err := a.askToJoin(ctx); err != nil {
			return err
		}
		err := a.handleOrders(ctx, orders, again)
		if !errors.Is(err, errAgain) {
			a.heartbeat(true)
			a.nc.FlushTimeout(time.Second)
			return err
		}
		a.log.Warn("joining again", "reason", err)
		if err := Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (a *Client) askToJoin(ctx context.Context) error {
	for said := ""; ; {
		a.join.Header().Nonce = subjects.NewID()
		b, err := protocol.Pack(a.signer, protocol.JoinMessage, a.join, nil)
		if err != nil {
			return err
		}
		subject := a.Verb(subjects.JoinVerb)
		text, err := request(ctx, a.nc, subject, b, 10*time.Second, a.log)
		if err != nil {
			return err
		}
		var v protocol.JoinReply
		_, err = protocol.Unpack(*a.server.Load(), protocol.JoinReplyMessage, text, &v)
		if errors.Is(err, certs.ErrForged) && a.Who.Certified() {
			if err = a.renewServer(ctx); err == nil {
				Sleep(ctx, 250*time.Millisecond)
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("the server's answer: %w; if it started another run, restart this client", err)
		}
		switch {
		case v.Question != protocol.Question(subject, b):
			a.log.Warn("an answer is dropped", "reason", errOther)
		case v.OK:
			a.seq, a.try = v.Seq, ""
			return a.role.Joined(v)
		case !v.Later:
			return fmt.Errorf("%w: %s", errRefused, protocol.Printable(v.Reason))
		case v.Reason != said:
			said = v.Reason
			a.log.Info("not yet", "reason", protocol.Printable(said))
		}
		if err := Sleep(ctx, HeartbeatInterval); err != nil {
			return err
		}
	}
}

// heartbeat says that the client is there and which order it has, or that it leaves. Nobody waits for it, so that a
// lost one is no failure.
func (a *Client) heartbeat(leaves bool) {
	a.heartbeats++
	v := protocol.Heartbeat{Run: a.Invitation.Run, Client: a.Client, Instance: a.join.Header().Instance,
		Count: a.heartbeats, Doing: a.activity.Load().(string), Try: a.try, Leaves: leaves}
	b, err := protocol.Pack(a.signer, protocol.HeartbeatMessage, v, nil)
	if err == nil {
		a.nc.Publish(a.Verb(subjects.HeartbeatVerb), b)
	}
}

// handleOrders does orders as they come.
func (a *Client) handleOrders(ctx context.Context, orders, again <-chan *nats.Msg) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(HeartbeatInterval)
	defer ticker.Stop()
	a.heartbeat(false)
	var now *ActiveOrder
	defer func() { now.stop() }()
	for {
		select {
		case m := <-orders:
			next := a.Receive(m)
			switch {
			case next == nil:
			case now != nil && now.ID == next.ID && !now.finished: // the same again: the newest is the one to answer
				now.retry(next)
			default:
				now.stop()
				now = next
				now.start(ctx, a)
			}
		case err := <-now.over():
			done := now.Kind == protocol.EndKind
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
			if _, err := a.Who.Revoked.Refresh(); err != nil {
				a.log.Error("cannot read", "error", err)
			}
			a.heartbeat(false)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Receive reads an order. What the server did not sign, or signed for another run or client, or long ago, is dropped.
func (a *Client) Receive(m *nats.Msg) *ActiveOrder {
	j := &ActiveOrder{}
	var err error
	if j.Body, err = a.open(protocol.OrderMessage, m.Data, &j.Order); err == nil {
		err = j.Order.Check()
	}
	switch {
	case err != nil:
	case j.Object == "" && (len(j.Body) != j.Size || protocol.Checksum(j.Body) != j.Sum):
		err = protocol.ErrDamaged
	case j.Order.Run != a.Invitation.Run:
		err = fmt.Errorf("it belongs to run %.12s", j.Order.Run)
	case j.Seq <= a.seq:
		err = errors.New("a newer one came before it")
	case j.Try == a.try:
		return nil
	default:
		if err = a.role.Accepts(j.Order); err == nil {
			if a.try, j.try = j.Try, j.Try; j.Size <= a.Largest { // others are answered, and nothing else
				a.seq = j.Seq - 1
			}
			return j
		}
	}
	if a.dropped++; a.dropped <= 100 || a.dropped%1000 == 0 { // who sends nonsense does not fill the log
		a.log.Warn("an instruction is dropped", "reason", protocol.Printable(err.Error()), "dropped", a.dropped)
	}
	return nil
}

// open reads a message that the server signed. One that it did not sign with the key that this member knows may be
// signed with that of a new certificate: the server is asked for it, now and then, and sends what was not taken again.
func (a *Client) open(what string, b []byte, header any) ([]byte, error) {
	body, err := protocol.Unpack(*a.server.Load(), what, b, header)
	if last, now := a.asked.Load(), time.Now().Unix(); errors.Is(err, certs.ErrForged) && a.Who.Certified() &&
		now-last >= renewPause && a.asked.CompareAndSwap(last, now) {
		go func() {
			if err := a.renewServer(BriefContext(context.Background())); err != nil {
				a.log.Debug("no new certificate of the server was found", "error", err)
			}
		}()
	}
	return body, err
}

// renewPause is how long a member waits before it asks for the server's certificate again, in seconds.
const renewPause = 5

// renewServer asks the server of this run for its certificate.
func (a *Client) renewServer(ctx context.Context) error {
	inv, err := Invite(ctx, a.nc, a.Address, a.question, a.Who, a.Largest, a.log)
	if err == nil && inv.Run != a.Invitation.Run {
		err = errors.New("the server started another run; restart this program")
	}
	if err == nil {
		a.server.Store(&inv.server)
	}
	return err
}

// request asks the server. It gives up when the connection was lost meanwhile: nothing that was on its way comes any
// more.
func (a *Client) request(ctx context.Context, patience time.Duration, verb string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a.mu.Lock()
	back := a.reconnected
	a.mu.Unlock()
	go func() {
		select {
		case <-back:
			cancel()
		case <-ctx.Done():
		}
	}()
	m, err := a.nc.RequestWithContext(ctx, a.Verb(verb), body)
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
