package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	protobuf "google.golang.org/protobuf/proto"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/protocol"
	"promptfed/runtime/tensor"
)

// task is an instruction that a client executes, from its arrival to the receipt of its reply. Only the client's loop
// has it; a goroutine computes the reply.
type task struct {
	*protocol.Instruction
	download *partial // tensors that come in chunks; nil if they are complete
	damaged  int      // how often the complete tensors were damaged
	cancel   context.CancelFunc
	done     chan result // of the computation
	running  sync.WaitGroup

	result
	computed     time.Time
	acknowledged bool
}

// result is the end of a computation.
type result struct {
	reply *protocol.Reply // without its tensors; nil before the end
	body  []byte          // tensors of the reply
	err   error           // ends the client
}

// receiveInstruction starts a task, or sends the reply again if it is computed.
func (s *clientStream) receiveInstruction(o *protocol.Instruction) error {
	if err := s.check(o); err != nil {
		if s.dropped++; s.dropped <= 100 || s.dropped%1000 == 0 { // invalid messages must not fill the log
			s.log.Warn("an instruction is dropped", "reason", protocol.Printable(err.Error()), "dropped", s.dropped)
		}
		return nil
	}
	s.seq = o.Seq
	if t := s.task; t != nil && t.Id == o.Id && !t.failed() {
		t.Attempt = o.Attempt
		if s.reply = t.reply != nil; !s.reply && t.download != nil {
			return s.request(t)
		}
		return nil
	}
	s.fetch, s.reply, s.chunk = nil, false, nil
	s.task.stop()
	s.task = &task{Instruction: o, done: make(chan result, 1), cancel: func() {}}
	if err := checkLarge(int(o.Content.Size), s.largest); err != nil {
		s.fail(s.task, fmt.Errorf("the instruction's tensors: %w", err))
		return nil
	}
	if o.Content.Inline() {
		s.start(s.task, o.Content.Body)
		return nil
	}
	file, err := s.store.chunks(o.Content.Sum)
	if err != nil {
		return endError{err}
	}
	s.task.download = &partial{of: o.Content, file: file}
	info, err := file.Stat() // its length is what arrived before
	if err != nil {
		return endError{err}
	}
	s.task.download.have = min(info.Size(), int64(o.Content.Size))
	return s.request(s.task)
}

// request asks for the missing chunks of an instruction.
func (s *clientStream) request(t *task) error {
	if t.download.have >= int64(t.Content.Size) {
		return s.received(t)
	}
	s.fetch = t.download.missing()
	return nil
}

// receiveChunk stores a chunk of the instruction's tensors. The last one starts the computation.
func (s *clientStream) receiveChunk(c *protocol.Chunk) error {
	t := s.task
	if t == nil || t.download == nil || c.Sum != t.Content.Sum {
		return nil // of an earlier instruction
	}
	switch err := t.download.write(c); {
	case errors.Is(err, errChunk):
		return nil // of an earlier request
	case err != nil:
		return endError{err}
	case t.download.complete():
		return s.received(t)
	}
	return nil
}

// maxDamaged is how often the tensors of an instruction may differ from their checksum: the file may be an old one.
const maxDamaged = 3

// received checks complete tensors.
func (s *clientStream) received(t *task) error {
	body, err := t.download.body()
	if err != nil {
		return endError{err}
	}
	if protocol.Checksum(body) != t.Content.Sum {
		if t.damaged++; t.damaged == maxDamaged {
			t.close()
			s.fail(t, fmt.Errorf("the instruction's tensors: %w", protocol.ErrDamaged))
			return nil
		}
		if err := t.download.file.Truncate(0); err != nil {
			return endError{err}
		}
		t.download.have = 0
		return s.request(t)
	}
	os.Remove(t.download.file.Name())
	t.close()
	s.start(t, body)
	return nil
}

func (t *task) close() {
	t.download.close()
	t.download = nil
}

// start computes the reply.
func (c *Client) start(t *task, body []byte) {
	var ctx context.Context
	ctx, t.cancel = context.WithCancel(context.Background())
	t.running.Go(func() { t.done <- c.compute(ctx, t, body) })
}

// fail makes an error the reply.
func (c *Client) fail(t *task, why error) { t.done <- c.replyTo(t, message.Reply{}, why) }

// compute executes an instruction and returns its reply. Failures of the computation are reported to the server.
func (c *Client) compute(ctx context.Context, t *task, body []byte) result {
	state, err := c.store.get(t.Accepted)
	if err == nil {
		err = c.store.prune(t.Instruction)
	}
	if err != nil {
		return result{err: err}
	}
	out, err := c.execute(ctx, t, body, state)
	if ctx.Err() != nil {
		return result{} // another instruction came, or the client ends
	}
	return c.replyTo(t, out, err)
}

func (c *Client) execute(ctx context.Context, t *task, body []byte, s message.ClientState) (message.Reply, error) {
	m, err := t.Content.Tensors(body)
	if err != nil {
		return message.Reply{}, err
	}
	o, err := t.Message().WithTensors(m)
	if err != nil {
		return message.Reply{}, err
	}
	if t.Kind == protocol.EndKind {
		if err := c.executor.Finish(o, s); err != nil {
			return message.Reply{}, err
		}
		return message.Reply{}, c.store.finish()
	}
	r, next, err := c.executor.Execute(ctx, o, s)
	if err == nil && next != nil && ctx.Err() == nil {
		err = c.store.put(int(t.Round), t.Id, *next)
	}
	return r, err
}

// replyTo returns the reply to an instruction: its result, or the reason of its failure.
func (c *Client) replyTo(t *task, out message.Reply, failed error) result {
	r := &protocol.Reply{Id: t.Id}
	var tensors tensor.Map
	var err error
	if failed != nil {
		c.log.Error("the instruction failed", "round", t.Round+1, "kind", t.Kind, "error", failed)
		r.Error = protocol.Printable(failed.Error())
	} else {
		r.Examples, r.Loss, r.Steps = int64(out.Upload.N), out.Stats.Loss, int64(out.Stats.Steps)
		tensors = out.Tensors()
		if message.Kind(t.Kind).Tests() {
			r.Scores, err = json.Marshal(out.Scores)
		} else if out.Stats.Terms != nil {
			r.Terms, err = json.Marshal(out.Stats.Terms)
		}
	}
	body, e := message.EncodeTensors(tensors)
	r.Content = protocol.ContentOf(body)
	return result{r, body, errors.Join(err, e)}
}

// finish records the end of the computation. Its error ends the client.
func (t *task) finish(r result) error {
	t.result, t.computed = r, time.Now()
	return r.err
}

// message returns the reply to the newest attempt, with its tensors if they have at most limit bytes.
func (t *task) message(limit int) *protocol.Reply {
	r := protobuf.CloneOf(t.reply)
	r.Attempt = t.Attempt
	if len(t.body) <= limit {
		r.Content.Body = t.body
	}
	return r
}

// failed reports whether the server knows that the task failed. It then runs again, for example after the server was
// started again.
func (t *task) failed() bool { return t.acknowledged && t.reply.Error != "" }

// delivered reports whether the client is done: the server has its reply to the last instruction.
func (t *task) delivered() bool { return t != nil && t.Kind == protocol.EndKind && t.acknowledged }

// late reports whether the client has the final parameters, and could not report it for lastWord.
func (t *task) late() bool {
	return t != nil && t.Kind == protocol.EndKind && t.reply != nil && time.Since(t.computed) > lastWord
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
		t.close()
	}
}
