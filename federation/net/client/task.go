package client

import (
	"context"
	"sync"
	"time"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wire"
)

// task is an instruction that a client executes, from its arrival to the receipt of its reply. Only the client's loop
// has it; a goroutine computes the reply.
type task struct {
	*wire.Instruction
	cancel  context.CancelFunc
	done    chan result // of the computation
	running sync.WaitGroup

	result
	computed     time.Time
	acknowledged bool
}

// result is the end of a computation.
type result struct {
	reply *wire.Reply // without its tensors; nil before the end
	body  []byte      // tensors of the reply
	err   error       // ends the client
}

// receive starts a task, or lets the client send its reply again.
func (c *Client) receive(got received) {
	if got.dropped != nil {
		if c.dropped++; c.dropped <= 100 || c.dropped%1000 == 0 { // invalid messages must not fill the log
			c.log.Warn("an instruction is dropped", "reason", wire.Printable(got.dropped.Error()), "dropped", c.dropped)
		}
		return
	}

	if t := c.task; t != nil && t.Id == got.Id && !t.failed() {
		c.seq, t.Attempt, t.acknowledged = got.Seq, got.Attempt, false
		return
	}

	if got.body == nil && got.failed == nil { // the task failed since the client asked: it needs the tensors again
		return
	}

	c.seq = got.Seq
	c.task.stop()
	c.task = &task{Instruction: got.Instruction, done: make(chan result, 1), cancel: func() {}}
	c.task.Content.Body = nil
	if got.failed != nil {
		c.task.done <- c.replyTo(c.task, message.Reply{}, got.failed)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	t := c.task
	t.cancel = cancel
	t.running.Go(func() { t.done <- c.compute(ctx, t, got.body) })
}

// compute executes an instruction and returns its reply. Failures of the computation are reported to the server.
func (c *Client) compute(ctx context.Context, task *task, body []byte) result {
	state, err := c.store.get(task.Accepted)
	if err == nil {
		err = c.store.prune(task.Instruction)
	}

	if err != nil {
		return result{err: err}
	}

	out, err := c.execute(ctx, task, body, state)
	if ctx.Err() != nil {
		return result{} // another instruction came, or the client ends
	}

	return c.replyTo(task, out, err)
}

func (c *Client) execute(ctx context.Context, task *task, body []byte, state message.ClientState) (message.Reply,
	error) {
	m, err := wire.Tensors(body)
	if err != nil {
		return message.Reply{}, err
	}

	instruction, err := task.Message().WithTensors(m)
	if err != nil {
		return message.Reply{}, err
	}

	if task.Kind == wire.EndKind {
		if err := c.executor.Finish(instruction, state); err != nil {
			return message.Reply{}, err
		}
		return message.Reply{}, c.store.finish()
	}

	r, next, err := c.executor.Execute(ctx, instruction, state)
	if err == nil && next != nil && ctx.Err() == nil {
		err = c.store.put(int(task.Round), task.Id, *next)
	}

	return r, err
}

// replyTo returns the reply to an instruction: its result, or the reason of its failure.
func (c *Client) replyTo(task *task, out message.Reply, failed error) result {
	if failed != nil {
		c.log.Error("the instruction failed", "round", task.Round+1, "kind", task.Kind, "error", failed)
		out = message.Reply{}
	}

	r, body, err := wire.ReplyOf(message.Kind(task.Kind), out)
	if err != nil {
		return result{err: err}
	}

	if r.Id = task.Id; failed != nil {
		r.Error, r.Scores = wire.Printable(failed.Error()), nil
	}

	return result{reply: r, body: body}
}

// finish records the end of the computation. Its error ends the client.
func (t *task) finish(r result) error {
	t.result, t.computed = r, time.Now()
	return r.err
}

// message returns the reply to the newest attempt, with its tensors if they have at most limit bytes.
func (t *task) message(limit int) *wire.Reply {
	r := protobuf.CloneOf(t.reply)
	r.Attempt = t.Attempt
	if len(t.body) <= limit {
		r.Content.Body = t.body
	}
	return r
}

// unanswered reports whether the server does not have the reply, which is computed.
func (t *task) unanswered() bool { return t != nil && t.reply != nil && !t.acknowledged }

// failed reports whether the server knows that the task failed. It then runs again, for example after the server was
// started again.
func (t *task) failed() bool { return t.acknowledged && t.reply.Error != "" }

// delivered reports whether the client is done: the server has its reply to the last instruction.
func (t *task) delivered() bool { return t != nil && t.Kind == wire.EndKind && t.acknowledged }

// late reports whether the client has the final parameters, and could not report it for lastWord.
func (t *task) late() bool {
	return t != nil && t.Kind == wire.EndKind && t.reply != nil && time.Since(t.computed) > lastWord
}

// lastWord is how long a client tries to report that it has the final parameters.
const lastWord = 30 * time.Second

// finished returns the channel of the end of the computation.
func (t *task) finished() <-chan result {
	if t == nil {
		return nil
	}
	return t.done
}

// stop cancels the computation and waits for its end.
func (t *task) stop() {
	if t != nil {
		t.cancel()
		t.running.Wait()
	}
}
