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
// calls its methods, except for the goroutines that compute and send.
type task struct {
	*protocol.Instruction
	download *partial // tensors that come in chunks; nil if they are complete
	damaged  int      // how often the complete tensors were damaged
	cancel   context.CancelFunc
	done     chan error // of the computation
	running  sync.WaitGroup

	mu           sync.Mutex
	reply        *protocol.Reply // nil until it is computed; without its tensors
	body         []byte          // tensors of the reply
	computed     time.Time
	acknowledged bool
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
		t.mu.Lock()
		t.Attempt = o.Attempt
		computed := t.reply != nil
		t.mu.Unlock()
		switch {
		case computed:
			s.due.add(func(d *due) { d.reply = t })
		case t.download != nil:
			return s.fetch(t)
		}
		return nil
	}
	s.due.add(func(d *due) { d.fetch, d.reply, d.chunk = nil, nil, nil })
	s.task.stop()
	s.task = &task{Instruction: o, done: make(chan error, 1), cancel: func() {}}
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
	return s.fetch(s.task)
}

// fetch asks for the missing chunks of an instruction.
func (s *clientStream) fetch(t *task) error {
	if t.download.have >= int64(t.Content.Size) {
		return s.received(t)
	}
	s.due.add(func(d *due) { d.fetch = t.download.missing() })
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
		return s.fetch(t)
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
func (c *Client) fail(t *task, why error) {
	c.logFailure(t, why)
	t.done <- c.prepare(t, message.Reply{}, why)
}

func (c *Client) logFailure(t *task, why error) {
	c.log.Error("the instruction failed", "round", t.Round+1, "kind", t.Kind, "error", why)
}

// compute executes an instruction and prepares its reply. An error ends the client; failures of the computation are
// reported to the server.
func (c *Client) compute(ctx context.Context, t *task, body []byte) error {
	state, err := c.store.get(t.Accepted)
	if err == nil {
		err = c.store.prune(t.Instruction)
	}
	if err != nil {
		return err
	}
	out, err := c.execute(ctx, t, body, state)
	if ctx.Err() != nil {
		return nil // another instruction came, or the client ends
	}
	if err != nil {
		c.logFailure(t, err)
	}
	return c.prepare(t, out, err)
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

// prepare makes the reply to an instruction: its result, or the reason of its failure.
func (c *Client) prepare(t *task, out message.Reply, failed error) error {
	r := &protocol.Reply{Id: t.Id}
	var tensors tensor.Map
	var err error
	if failed != nil {
		r.Error = protocol.Printable(failed.Error())
	} else {
		r.Examples, r.Loss, r.Steps = int64(out.Upload.N), out.Stats.Loss, int64(out.Stats.Steps)
		tensors = out.Tensors()
		if message.Kind(t.Kind).Tests() {
			r.Scores, err = json.Marshal(out.Scores)
		}
	}
	body, e := message.EncodeTensors(tensors)
	if err = errors.Join(err, e); err != nil {
		return err
	}
	r.Content = protocol.ContentOf(body)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reply, t.body, t.computed = r, body, time.Now()
	return nil
}

// message returns the reply to the newest attempt, with its tensors if they have at most limit bytes.
func (t *task) message(limit int) *protocol.Reply {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := protobuf.CloneOf(t.reply)
	r.Attempt = t.Attempt
	if len(t.body) <= limit {
		r.Content.Body = t.body
	}
	return r
}

// chunk returns a chunk of the reply's tensors; nil if there is none.
func (t *task) chunk(at *protocol.Fetch) *protocol.Chunk {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reply == nil || t.reply.Content.Sum != at.Sum {
		return nil
	}
	return chunkOf(t.body, at)
}

// acknowledge records the receipt of the reply.
func (t *task) acknowledge(r *protocol.Receipt) {
	if t == nil || r.Id != t.Id {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acknowledged = t.reply != nil && r.Attempt == t.Attempt
}

// failed reports whether the server knows that the task failed. It then runs again, for example after the server was
// started again.
func (t *task) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acknowledged && t.reply.Error != ""
}

// delivered reports whether the client is done: the server has its reply to the last instruction.
func (t *task) delivered() bool {
	if t == nil || t.Kind != protocol.EndKind {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.acknowledged
}

// late reports whether the client has the final parameters, and could not report it for lastWord.
func (t *task) late() bool {
	if t == nil || t.Kind != protocol.EndKind {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reply != nil && time.Since(t.computed) > lastWord
}

// lastWord is how long a client tries to report that it has the final parameters.
const lastWord = 30 * time.Second

// finished returns the end of the computation.
func (t *task) finished() <-chan error {
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
