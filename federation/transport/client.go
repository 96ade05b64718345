package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// clientRole is the Role of a client of the experiment, whose state is in its folder.
type clientRole struct {
	*exchange.Invitation
	executor Executor
	store    *stateStore
	log      *slog.Logger
	last     *exchange.PreparedReply // repeated if the same instruction comes again
}

func (c *clientRole) Joined(v protocol.JoinReply) error {
	c.log.Info("joined", "client", c.Client)
	_, err := c.store.get(v.Accepted)
	// A resumed server may not have read its checkpoint yet and then names no upload; checkServer still verifies each
	// of its instructions.
	if err == nil && c.store.Safe != "" && v.Accepted+v.Safe != "" {
		if err = c.store.checkServer(v.Accepted, v.Safe); err != nil {
			err = fmt.Errorf("the server's answer: %w; if that is intended, use another --state", err)
		}
	}
	return err
}

func (c *clientRole) Accepts(o protocol.Instruction) error {
	if o.Client != c.Client || o.Total != c.Clients {
		return fmt.Errorf("it is for client %d of %d, not for this one", o.Client, o.Total)
	}
	if n := c.executor.Rounds(); o.Round >= n && n > 0 && o.Kind != protocol.EndKind {
		return fmt.Errorf("round %d of %d", o.Round+1, n)
	}
	return c.store.checkServer(o.Accepted, o.Safe)
}

func (c *clientRole) Execute(ctx context.Context, a *exchange.Client, j *exchange.ActiveInstruction) (
	*exchange.PreparedReply, error) {
	if c.last != nil && c.last.ID == j.ID {
		return c.last, nil
	}
	s, err := c.store.get(j.Accepted)
	if err == nil {
		err = c.store.prune(j.Instruction)
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

// compute executes an instruction.
func (c *clientRole) compute(ctx context.Context, a *exchange.Client, j *exchange.ActiveInstruction,
	s message.ClientState) (message.Reply, error) {
	body, err := a.Tensors(ctx, j, c.store.pieces)
	if err != nil {
		return message.Reply{}, withFlag(err)
	}
	m, err := j.Instruction.Content.Tensors(body)
	if err != nil {
		return message.Reply{}, err
	}
	o, err := j.Instruction.Message().WithTensors(m)
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

// withFlag names the flag of promptfed join that raises the limit.
func withFlag(err error) error {
	if errors.Is(err, exchange.ErrLarge) {
		return fmt.Errorf("%w (join --largest)", err)
	}
	return err
}

// FetchInvitation waits for the server of a run and requests the invitation of a client with the identity who, which
// accepts at most largest bytes of the invitation and of an instruction's tensors.
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

// Executor executes the instructions to a client.
type Executor interface {
	// Execute executes an instruction, as client.Worker.Execute does.
	Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply, *message.ClientState,
		error)
	// Finish receives the final shared parameters and the client's final state.
	Finish(o message.Instruction, s message.ClientState) error
	// Rounds returns the number of rounds, or 0 if it is unknown. Instructions of later rounds are refused.
	Rounds() int
}

// NewClient returns the transport of a client with its state in the folder dir.
func NewClient(nc *nats.Conn, inv *exchange.Invitation, request protocol.JoinRequest, dir string, do Executor,
	log *slog.Logger) (*exchange.Client, error) {
	server := inv.Key
	if inv.Who.Certified() { // the certificate proves the key, even a new one
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
