package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// clientRole is that of a client of the experiment: what it remembers is in its folder.
type clientRole struct {
	*exchange.Invitation
	executor Executor
	store    *stateStore
	log      *slog.Logger
	last     *exchange.PreparedReply // that it gave; the same order may come again
}

func (c *clientRole) Joined(v protocol.JoinReply) error {
	c.log.Info("joined", "client", c.Client)
	_, err := c.store.get(v.Accepted)
	// A server that goes on may not have read its checkpoint yet, and then names no upload; each of its orders is held
	// against what this client knows all the same (mine).
	if err == nil && c.store.Safe != "" && v.Accepted+v.Safe != "" {
		if err = c.store.checkServer(v.Accepted, v.Safe); err != nil {
			err = fmt.Errorf("the server's answer: %w; if that is intended, use another --state", err)
		}
	}
	return err
}

func (c *clientRole) Accepts(o protocol.Order) error {
	if o.Client != c.Client || o.Total != c.Clients {
		return fmt.Errorf("it is for client %d of %d, not for this one", o.Client, o.Total)
	}
	if n := c.executor.Rounds(); o.Round >= n && n > 0 && o.Kind != protocol.EndKind {
		return fmt.Errorf("round %d of %d", o.Round+1, n)
	}
	return c.store.checkServer(o.Accepted, o.Safe)
}

func (c *clientRole) Execute(ctx context.Context, a *exchange.Client, j *exchange.ActiveOrder) (*exchange.PreparedReply,
	error) {
	if c.last != nil && c.last.ID == j.ID {
		return c.last, nil
	}
	s, err := c.store.get(j.Accepted)
	if err == nil {
		err = c.store.prune(j.Order)
	}
	if err != nil {
		return nil, err
	}
	out, err := c.compute(ctx, a, j, s)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, exchange.ErrGone) {
		c.log.Debug("the instruction has expired", "round", j.Round+1, "kind", j.Kind)
		return nil, nil
	}
	if err != nil {
		c.log.Error("the instruction failed", "round", j.Round+1, "kind", j.Kind, "error", err)
	}
	ans, err := exchange.PrepareReply(j, out, out.Tensors(), err)
	if err == nil {
		c.last = ans
	}
	return ans, err
}

// compute is the client's part.
func (c *clientRole) compute(ctx context.Context, a *exchange.Client, j *exchange.ActiveOrder,
	s message.ClientState) (message.Reply, error) {
	body, err := a.Tensors(ctx, j, c.store.pieces)
	if err != nil {
		return message.Reply{}, withFlag(err)
	}
	m, err := j.Order.Content.Tensors(body)
	if err != nil {
		return message.Reply{}, err
	}
	o, err := j.Order.Instruction().With(m)
	if err != nil {
		return message.Reply{}, err
	}
	if j.Kind == protocol.EndKind {
		if err := c.executor.Finish(o, s); err != nil {
			return message.Reply{}, err
		}
		return message.Reply{}, c.store.finish()
	}
	r, next, err := c.executor.Execute(ctx, o, s)
	if err == nil && next != nil {
		err = c.store.put(j.Round, j.ID, *next)
	}
	return r, err
}

// withFlag names the flag of promptfed join by which a client takes more.
func withFlag(err error) error {
	if errors.Is(err, exchange.ErrLarge) {
		return fmt.Errorf("%w (join --largest)", err)
	}
	return err
}

// FetchInvitation waits for the server of a run and asks it for the invitation of a client, which has the identity who
// and takes at most largest bytes at a time: of the invitation, and of the tensors of an instruction.
func FetchInvitation(ctx context.Context, nc *nats.Conn, run string, client int, who certs.Identity, largest int,
	log *slog.Logger) (*exchange.Invitation, error) {
	if err := subjects.CheckName(run); err != nil {
		return nil, err
	}
	if client < 0 || client > subjects.MaxClient {
		return nil, fmt.Errorf("client %d: clients are numbered from 0", client)
	}
	inv, err := exchange.Invite(ctx, nc, subjects.Names(run).Client(client), protocol.HelloRequest{}, who, largest, log)
	if err != nil {
		return nil, withFlag(err)
	}
	if inv.Client = client; client >= inv.Clients {
		return nil, errors.New("the server's invitation is invalid")
	}
	return inv, nil
}

// Executor is what a client does with its orders.
type Executor interface {
	// Execute does what an order asks, as local.Worker.Answer.
	Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply, *message.ClientState,
		error)
	// Finish gets the last shared parameters and what the client remembers in the end.
	Finish(o message.Instruction, s message.ClientState) error
	// Rounds is how many the experiment has, 0 where that is not known. Orders of others are none.
	Rounds() int
}

// NewClient makes the transport of a client that remembers in the folder dir.
func NewClient(nc *nats.Conn, inv *exchange.Invitation, request protocol.JoinRequest, dir string, do Executor,
	log *slog.Logger) (*exchange.Client, error) {
	server := inv.Key
	if inv.Who.Certified() { // the certificate says whose key it is, also when that is a new one
		server = nil
	}
	v, err := openStateStore(dir, inv.Run, inv.Client, server)
	if err != nil {
		return nil, err
	}
	who, err := inv.Who.WithKey(dir)
	if err != nil {
		return nil, err
	}
	r := &clientRole{Invitation: inv, executor: do, store: v, log: log}
	return exchange.NewClient(nc, inv, who, subjects.NewID(), &request, r, log)
}
