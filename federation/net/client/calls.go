package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"promptfed/federation/net/wait"
	"promptfed/federation/net/wire"
)

// participate joins and takes part until a call fails. It returns nil when the run is over. Its goroutine alone has the
// client's state; others wait for the server.
func (c *Client) participate(ctx context.Context) error {
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ctx ends with a last call
	defer c.link.cut()
	defer cancel()
	if err := c.askToJoin(ctx); err != nil {
		return err
	}

	if c.lost {
		c.log.Info("connected again")
		c.lost = false
	}

	watch := time.NewTicker(time.Second)
	defer watch.Stop()
	received, sent := c.ask(calls, 0), &sending{}
	var failed error // the call for an instruction
	for failed == nil || sent.task != nil {
		if sent.task == nil && c.task.unanswered() {
			sent = c.send(calls)
		}

		select {
		case r := <-received:
			if failed = r.err; failed != nil { // a server that stops sends its receipts before it ends
				received = nil
				continue
			}
			pause := time.Duration(0)
			if c.receive(r); r.dropped != nil {
				pause = dropPause
			}
			if sent.task != nil && sent.task != c.task {
				sent.cancel()
			}
			received = c.ask(calls, pause)
		case r := <-c.task.finished():
			if err := c.task.finish(r); err != nil {
				return endError{err}
			}
		case err := <-sent.done:
			if sent.task == c.task && err != nil {
				return err
			}
			if sent.task == c.task && sent.attempt == c.task.Attempt {
				c.task.acknowledged = true
			}
			if sent = (&sending{}); c.task.delivered() {
				if why := c.task.reply.Error; why != "" {
					return endError{errors.New(why)}
				}
				return nil
			}
		case <-watch.C:
			if err := c.link.checkServer(); err != nil {
				return err
			}
			if c.task.late() {
				return nil
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(calls, leaveTime)
			defer cancel()
			c.link.call.Leave(last, wrapperspb.String(c.join.Instance))
			return ctx.Err()
		}
	}

	return failed
}

const (
	dropPause = 100 * time.Millisecond // after an instruction that the client drops
	leaveTime = time.Second            // of the last call
)

// later calls a function in a goroutine and returns the channel of its result.
func later[T any](do func() T) <-chan T {
	out := make(chan T, 1)
	go func() { out <- do() }()
	return out
}

// askToJoin asks until the server admits the client.
func (c *Client) askToJoin(ctx context.Context) error {
	for said := ""; ; {
		v, err := c.link.call.Join(ctx, c.join)
		if err != nil {
			return err
		}
		if v.Later == "" {
			c.seq = 0 // the newest instruction comes again
			c.log.Info("joined", "client", c.Invitation.Client)
			return c.joined(v)
		}
		if v.Later != said {
			said = v.Later
			c.log.Info("not yet", "reason", wire.Printable(said))
		}
		if err := wait.For(ctx, joinPause); err != nil {
			return err
		}
	}
}

// received is the end of a call for an instruction.
type received struct {
	*wire.Instruction
	body    []byte // its tensors; nil if the client has the instruction
	dropped error  // why the client does not execute it
	failed  error  // why it cannot
	err     error  // why there is none
}

// ask waits for the next instruction after a pause.
func (c *Client) ask(ctx context.Context, pause time.Duration) <-chan received {
	q := &wire.Ask{Instance: c.join.Instance, Seq: c.seq}
	if c.task != nil && !c.task.failed() {
		q.Has = c.task.Id
	}

	return later(func() received {
		if err := wait.For(ctx, pause); err != nil {
			return received{err: err}
		}
		return c.next(ctx, q)
	})
}

// next gets the next instruction with its tensors.
func (c *Client) next(ctx context.Context, ask *wire.Ask) (got received) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.link.call.Next(ctx, ask)
	if err != nil {
		cancel()
		return received{err: err}
	}
	defer stream.Close()
	defer cancel() // before, so that Close does not read the rest
	part := func() (*wire.Part, error) { return wire.Next(stream) }
	p, err := part()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}

	if err != nil {
		return received{err: err}
	}

	if got = c.open(ask, p, part); got.dropped == nil && got.failed == nil && got.err == nil {
		stream.Receive() // the end
	}

	return got
}

// open checks an instruction and receives its tensors, unless the client has them.
func (c *Client) open(ask *wire.Ask, p *wire.Part, next func() (*wire.Part, error)) received {
	got := received{Instruction: p.Instruction}
	if got.dropped = c.check(got.Instruction, ask.Seq); got.dropped != nil {
		return got
	}

	switch size := int(got.Content.Size); {
	case size > c.largest:
		got.failed = checkLarge(size, c.largest)
	case got.Content.Inline():
		got.body, got.failed = append([]byte{}, got.Content.Body...), got.Content.CheckInline()
	case got.Id != ask.Has:
		var b bytes.Buffer
		err := got.Content.ReceiveParts(&b, next)
		if got.body = b.Bytes(); errors.Is(err, wire.ErrDamaged) {
			got.failed = err
		} else if err != nil {
			return received{err: err}
		}
	}

	if got.failed != nil {
		got.failed = fmt.Errorf("the instruction's tensors: %w", got.failed)
	}

	return got
}

// sending is the call that sends a reply.
type sending struct {
	task    *task // nil for none
	attempt string
	cancel  context.CancelFunc
	done    <-chan error
}

// send sends the reply of the task.
func (c *Client) send(ctx context.Context) *sending {
	ctx, cancel := context.WithCancel(ctx)
	r, body := c.task.message(c.limit), c.task.body
	r.Instance = c.join.Instance
	return &sending{c.task, r.Attempt, cancel, later(func() error {
		defer cancel()
		return c.answer(ctx, r, body)
	})}
}

// answer sends a reply with its tensors, until the server has answered.
func (c *Client) answer(ctx context.Context, r *wire.Reply, body []byte) error {
	stream, err := c.link.call.Answer(ctx)
	if err != nil {
		return err
	}

	err = stream.Send(&wire.Part{Reply: r})
	if err == nil && !r.Content.Inline() {
		err = wire.SendParts(ctx, body, stream.Send)
	}

	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}

	_, err = stream.CloseAndReceive()
	return err
}
