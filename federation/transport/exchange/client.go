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

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// Role is the task of a member: that of a client, or that of a worker's job.
type Role interface {
	// Joined reports that the server admitted the member.
	Joined(v protocol.JoinReply) error
	// Accepts returns why an instruction is not for this member.
	Accepts(o protocol.Instruction) error
	// Execute computes the reply to an instruction. The reply is nil if the tensors of the instruction are gone, for
	// example after the server restarted; the instruction then comes again. An error ends the client; failures of the
	// computation are reported to the server.
	Execute(ctx context.Context, a *Client, j *ActiveInstruction) (*PreparedReply, error)
}

// Client is a member's side of a run: it joins, sends heartbeats and executes one instruction after the other.
type Client struct {
	*Invitation
	nc         *nats.Conn
	join       protocol.Joining
	signer     certs.Signer
	role       Role
	log        *slog.Logger
	activity   atomic.Value // string
	heartbeats int64
	seq        int64                          // number of the newest instruction
	try        string                         // attempt of the newest instruction
	dropped    int                            // invalid instructions
	server     atomic.Pointer[certs.Verifier] // the server's key; its certificate may be renewed
	asked      atomic.Int64                   // when the server was last asked for its key, Unix seconds

	mu          sync.Mutex
	reconnected chan struct{} // closed when the lost connection is back
}

// NewClient returns the client of a process, which signs with its own key.
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

// errRefused reports that the server refuses a member.
var errRefused = errors.New("the server refuses this client or worker")

// errAgain requests another join.
var errAgain = errors.New("the server does not know this client")

// Run takes part until the run is over or ctx ends, and then reports that the member leaves.
func (a *Client) Run(ctx context.Context) error {
	orders, again := make(chan *nats.Msg, 16), make(chan *nats.Msg, 1)
	for subject, to := range map[string]chan *nats.Msg{a.Instructions(): orders, a.Rejoin(): again} {
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
		err := a.handleInstructions(ctx, orders, again)
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

// heartbeat sends the current instruction, or that the client leaves. There is no answer, so a lost heartbeat is no
// failure.
func (a *Client) heartbeat(leaves bool) {
	a.heartbeats++
	v := protocol.Heartbeat{Run: a.Invitation.Run, Client: a.Client, Instance: a.join.Header().Instance,
		Count: a.heartbeats, Doing: a.activity.Load().(string), Try: a.try, Leaves: leaves}
	b, err := protocol.Pack(a.signer, protocol.HeartbeatMessage, v, nil)
	if err == nil {
		a.nc.Publish(a.Verb(subjects.HeartbeatVerb), b)
	}
}

func (a *Client) handleInstructions(ctx context.Context, orders, again <-chan *nats.Msg) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(HeartbeatInterval)
	defer ticker.Stop()
	a.heartbeat(false)
	var now *ActiveInstruction
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

// Receive reads an instruction. It drops one that is not signed by the server, is for another run or client, or is old.
func (a *Client) Receive(m *nats.Msg) *ActiveInstruction {
	j := &ActiveInstruction{}
	var err error
	if j.Body, err = a.open(protocol.InstructionMessage, m.Data, &j.Instruction); err == nil {
		err = j.Instruction.Check()
	}
	switch {
	case err != nil:
	case j.Object == "" && (len(j.Body) != j.Size || protocol.Checksum(j.Body) != j.Sum):
		err = protocol.ErrDamaged
	case j.Instruction.Run != a.Invitation.Run:
		err = fmt.Errorf("it belongs to run %.12s", j.Instruction.Run)
	case j.Seq <= a.seq:
		err = errors.New("a newer one came before it")
	case j.Try == a.try:
		return nil
	default:
		if err = a.role.Accepts(j.Instruction); err == nil {
			if a.try, j.try = j.Try, j.Try; j.Size <= a.Largest { // larger ones are answered, nothing else
				a.seq = j.Seq - 1
			}
			return j
		}
	}
	if a.dropped++; a.dropped <= 100 || a.dropped%1000 == 0 { // invalid messages must not fill the log
		a.log.Warn("an instruction is dropped", "reason", protocol.Printable(err.Error()), "dropped", a.dropped)
	}
	return nil
}

// open reads a message signed by the server. If it is not signed with the known key, the key may belong to a new
// certificate: the client then asks the server for it, at limited intervals, and the server repeats the instruction.
func (a *Client) open(what string, b []byte, header any) ([]byte, error) {
	body, err := protocol.Unpack(*a.server.Load(), what, b, header)
	if last, now := a.asked.Load(), time.Now().Unix(); errors.Is(err, certs.ErrForged) && a.Who.Certified() &&
		now-last >= renewPause && a.asked.CompareAndSwap(last, now) {
		go func() {
			if err := a.renewServer(RequestContext(context.Background())); err != nil {
				a.log.Debug("no new certificate of the server was found", "error", err)
			}
		}()
	}
	return body, err
}

// renewPause is the time between two requests for the server's certificate, in seconds.
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

// request sends the server a request. It gives up if the connection was lost meanwhile, because the answer is lost too.
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

// encoded returns an unsigned message as JSON.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // plain structs of strings and numbers have no error
		panic(err)
	}
	return b
}
