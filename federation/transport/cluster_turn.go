package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
)

var _ engine.Answerer = (*Cluster)(nil)

// tries bounds how often a turn may fail on workers before the run does.
const tries = 3

// Answer has a turn done by some worker.
func (c *Cluster) Answer(ctx context.Context, client *engine.Client, o engine.Order, s engine.State) (engine.Reply,
	*engine.State, error) {
	fail := func(err error) (engine.Reply, *engine.State, error) { return engine.Reply{Client: client.ID}, nil, err }
	body, err := encodeTurn(o, s)
	if err != nil {
		return fail(err)
	}
	head := headed(c.run, o, client.ID)
	head.of(body)
	head.ID = head.identity()
	w := &waiting{order: o, done: make(chan outcome, 1), failed: make(chan error, 1)}
	c.mu.Lock()
	c.waiting[head.ID] = w
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, head.ID)
		c.mu.Unlock()
		c.forget(head.Object)
	}()
	for n := 1; ; n++ {
		head.Try = NewID() // every try is a message of its own
		c.mu.Lock()
		w.try = head.Try
		c.mu.Unlock()
		if err := c.give(ctx, &head, body); err != nil {
			return fail(err)
		}
		select {
		case out := <-w.done:
			return out.reply, out.next, nil
		case err := <-w.failed:
			if n == tries {
				return fail(fmt.Errorf("%w (tried %d times)", err, n))
			}
			c.set.Log.Warn("a turn failed; it is given again", "round", o.Round, "client", client.ID, "reason", err)
		case <-ctx.Done():
			return fail(ctx.Err())
		}
	}
}

// give puts a turn into the queue, once there is a NATS server.
func (c *Cluster) give(ctx context.Context, head *order, body []byte) error {
	for {
		err := c.put(ctx, head, body)
		if err == nil || ctx.Err() != nil || !natsAway(err) {
			return err
		}
		c.set.Log.Warn("a turn could not be stored; trying again", "client", head.Client, "error", err)
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func (c *Cluster) put(ctx context.Context, head *order, body []byte) error {
	message, err := c.enclose(ctx, c.store, c.set.Limit, turnMessage, head, &head.content, body)
	if err != nil {
		return err
	}
	if _, err := c.js.Publish(ctx, c.subject(turnSubject), message, jetstream.WithMsgID(head.Try),
		jetstream.WithRetryAttempts(30),
		jetstream.WithRetryWait(time.Second)); err != nil {
		return fmt.Errorf("cannot put the turn of client %d into the queue: %w", head.Client, err)
	}
	sent := len(message)
	if head.Object != "" {
		sent += len(body)
	}
	c.mu.Lock()
	c.totals.Down += int64(sent)
	c.mu.Unlock()
	return nil
}

// take looks at one result: it counts once, or it is dropped. An error means that it must come again.
func (c *Cluster) take(m jetstream.Msg) error {
	var r reply
	body, err := unpack(checksum.verifier, resultMessage, m.Data(), &r)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		c.set.Log.Warn("a result that cannot be read is dropped", "reason", plain(err.Error()))
		if id, try := turnOf(m.Headers().Get(jetstream.MsgIDHeader)); id != "" {
			c.failed(id, try, errors.New("a worker's result cannot be read: "+plain(err.Error())))
		}
		return nil
	}
	c.mu.Lock()
	w := c.waiting[r.ID]
	if w == nil || r.Run != c.run || r.Client != w.order.Clients[0] {
		c.totals.Late++
		c.mu.Unlock()
		c.set.Log.Debug("a late or repeated result is dropped", "client", r.Client)
		c.forget(r.Object)
		return nil
	}
	c.mu.Unlock()
	out, size, err := c.read(r, w.order, body)
	if err != nil && natsAway(err) {
		return err
	}
	defer c.forget(r.Object)
	if err != nil {
		c.failed(r.ID, r.Try, err)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[r.ID] == nil { // another result of this turn was faster
		c.totals.Late++
		return nil
	}
	delete(c.waiting, r.ID)
	c.totals.Turns++
	c.totals.Up += int64(len(m.Data()) + size)
	w.done <- out
	return nil
}

// failed tells the turn of a try that it failed.
func (c *Cluster) failed(id, try string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.totals.Failed++
	if w := c.waiting[id]; w != nil && w.try == try {
		w.try = ""
		w.failed <- err
	}
}

// read reads a result, and the object that it names, of so many bytes.
func (c *Cluster) read(r reply, o engine.Order, body []byte) (out outcome, size int, err error) {
	if r.Error != "" {
		return out, 0, errors.New(plain(r.Error))
	}
	fail := func(err error) (outcome, int, error) {
		return outcome{}, 0, fmt.Errorf("round %d, client %d: a worker's result is refused: %w", o.Round, r.Client, err)
	}
	if r.Object != "" {
		if r.Size > c.set.Largest {
			return fail(fmt.Errorf("it has %d bytes; at most %d are taken", r.Size, c.set.Largest))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if body, err = load(ctx, c.store, r.content); err != nil {
			return fail(err)
		}
		size = len(body)
	}
	if out.reply, out.next, err = r.decodeResult(o, body); err != nil {
		return fail(err)
	}
	return out, size, nil
}

// forget removes an object; one that stays is removed with the queue.
func (c *Cluster) forget(object string) {
	if err := drop(c.store, object); err != nil {
		c.set.Log.Debug("an object could not be removed", "error", err)
	}
}
