package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wait"
	"promptfed/federation/net/wire"
)

// Executor executes the instructions to a client.
type Executor interface {
	// Execute executes an instruction, as client.Worker.Execute does.
	Execute(ctx context.Context, instruction message.Instruction, s message.ClientState) (message.Reply,
		*message.ClientState, error)
	// Finish receives the final shared parameters and the client's final state.
	Finish(instruction message.Instruction, s message.ClientState) error
	// Rounds returns the number of rounds, or 0 if it is unknown. Instructions of later rounds are refused.
	Rounds() int
}

// Client is a client's side of a run: it joins and executes one instruction after the other. Its state is in a folder.
type Client struct {
	*Invitation
	join     *wire.JoinCall
	executor Executor
	store    *stateStore
	log      *slog.Logger

	seq     int64 // number of the newest instruction
	task    *task // the newest instruction; nil before the first
	dropped int   // invalid instructions
	lost    bool  // the connection
}

// NewClient returns the client of an invitation with its state in the folder dir.
func NewClient(inv *Invitation, request wire.JoinRequest, dir string, do Executor, log *slog.Logger) (*Client, error) {
	server := inv.Key
	if inv.link.Identity.Certified() { // the certificate proves the key, even a new one
		server = nil
	}

	store, err := openStateStore(dir, inv.Run, inv.Client, server)
	if err != nil {
		return nil, err
	}

	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}

	return &Client{Invitation: inv, executor: do, store: store, log: log,
		join: &wire.JoinCall{Run: inv.Run, Instance: wire.NewID(), Request: text}}, nil
}

// endError ends a client, as where a proxy does not let it pass: another connection cannot help.
type endError struct{ error }

func (e endError) Unwrap() error { return e.error }

// Run takes part until the run is over or ctx ends, and then reports that the client leaves. It connects again when the
// connection is lost.
func (c *Client) Run(ctx context.Context) error {
	defer func() { c.task.stop() }()
	for {
		err := c.participate(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}

		if end, ok := errors.AsType[endError](err); ok {
			return end.error
		}

		if final := c.link.final(err); final != nil {
			return final
		}

		select {
		case r := <-c.task.finished():
			if err := c.task.finish(r); err != nil {
				return err
			}
		default:
		}

		if c.task.late() {
			return nil
		}

		if !c.lost {
			c.log.Warn("the connection is lost; trying again", "error", err)
			c.lost = true
		}

		if err := wait.For(ctx, reconnectPause+rand.N(reconnectPause)); err != nil {
			return err
		}
	}
}

// reconnectPause is the shortest pause before another connection; many clients must not come at once.
const reconnectPause = 500 * time.Millisecond

// joinPause is the time between two requests to join of a client that waits.
const joinPause = 2 * time.Second

// joined checks that the server counts uploads that this client knows.
func (c *Client) joined(v *wire.JoinAnswer) error {
	_, err := c.store.get(v.Accepted)

	// A resumed server may not have read its checkpoint yet and then names no upload; checkServer still verifies each
	// of its instructions.
	if err == nil && v.Accepted+v.Safe != "" {
		if err = c.store.checkServer(v.Accepted, v.Safe); err != nil {
			err = fmt.Errorf("the server's answer: %w; if that is intended, use another --state", err)
		}
	}

	if err != nil {
		return endError{err}
	}

	return nil
}

// check returns why an instruction is not one that this client executes; seq is the number of the last one.
func (c *Client) check(instruction *wire.Instruction, seq int64) error {
	if err := wire.CheckInstruction(instruction); err != nil {
		return err
	}

	switch n := c.executor.Rounds(); {
	case instruction.Run != c.Invitation.Run:
		return fmt.Errorf("it belongs to run %.12s", instruction.Run)
	case instruction.Seq <= seq:
		return errors.New("a newer one came before it")
	case int(instruction.Client) != c.Invitation.Client || int(instruction.Total) != c.Clients:
		return fmt.Errorf("it is for client %d of %d, not for this one", instruction.Client, instruction.Total)
	case int(instruction.Round) >= n && n > 0 && instruction.Kind != wire.EndKind:
		return fmt.Errorf("round %d of %d", instruction.Round+1, n)
	}

	return c.store.checkServer(instruction.Accepted, instruction.Safe)
}
