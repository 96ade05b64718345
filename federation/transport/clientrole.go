package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"promptfed/federation/engine/message"
)

// clientRole is that of an agent that is a client: what it remembers is in its folder.
type clientRole struct {
	*Invitation
	part  Part
	vault *vault
	// rounds that the experiment has; 0 where that is not known
	rounds int
	log    *slog.Logger
	last   *answer // that it gave; the same order may come again
}

func (c *clientRole) joined(v verdict) error {
	c.log.Info("joined", "client", c.client)
	_, err := c.vault.get(v.Accepted)
	// A server that goes on may not have read its checkpoint yet, and then names no upload; each of its orders is held
	// against what this client knows all the same (mine).
	if err == nil && c.vault.Safe != "" && v.Accepted+v.Safe != "" {
		if err = c.vault.plausible(v.Accepted, v.Safe); err != nil {
			err = fmt.Errorf("the server's answer: %w; if that is right, take another --state", err)
		}
	}
	return err
}

func (c *clientRole) mine(o order) error {
	if o.Client != c.client || o.Of != c.Clients {
		return fmt.Errorf("it is for client %d of %d", o.Client, o.Of)
	}
	if o.Round >= c.rounds && c.rounds > 0 && o.Kind != endKind {
		return fmt.Errorf("round %d of %d", o.Round+1, c.rounds)
	}
	return c.vault.plausible(o.Accepted, o.Safe)
}

func (c *clientRole) work(ctx context.Context, a *Agent, j *job) (*answer, error) {
	if c.last != nil && c.last.ID == j.ID {
		return c.last, nil
	}
	s, err := c.vault.get(j.Accepted)
	if err == nil {
		err = c.vault.keep(j.order)
	}
	if err != nil {
		return nil, err
	}
	out, err := c.compute(ctx, a, j, s)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, errGone) {
		c.log.Debug("the order is gone", "round", j.Round, "kind", j.Kind)
		return nil, nil
	}
	if err != nil {
		c.log.Error("the order could not be done", "round", j.Round, "kind", j.Kind, "error", err)
	}
	ans, err := answered(j, out, out.Tensors(), err)
	if err == nil {
		c.last = ans
	}
	return ans, err
}

// compute is the client's part.
func (c *clientRole) compute(ctx context.Context, a *Agent, j *job, s message.ClientState) (message.Reply, error) {
	body, err := a.content(ctx, j, c.vault.pieces)
	if err != nil {
		return message.Reply{}, err
	}
	m, err := j.order.content.tensors(body)
	if err != nil {
		return message.Reply{}, err
	}
	o, err := j.order.asked().With(m)
	if err != nil {
		return message.Reply{}, err
	}
	if j.Kind == endKind {
		if err := c.part.Finish(o, s); err != nil {
			return message.Reply{}, err
		}
		return message.Reply{}, c.vault.finish()
	}
	r, next, err := c.part.Answer(ctx, o, s)
	if err == nil && next != nil {
		err = c.vault.put(j.Round, j.ID, *next)
	}
	return r, err
}
