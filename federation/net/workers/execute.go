package workers

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/wait"
)

const (
	tries   = 3  // failures of a job before the run fails
	maxLost = 20 // workers lost with one job before the job counts as the cause
)

// outcome is how an attempt of a job ended.
type outcome struct {
	reply message.Reply
	next  *message.ClientState
	err   error
	fatal bool      // it would fail on every worker
	again bool      // the job was lost with its stream
	msg   *nats.Msg // the result, before it is decoded
}

// Execute executes an instruction on a worker.
func (d *Dispatcher) Execute(ctx context.Context, client *spec.Client, instruction message.Instruction,
	state func() (message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	c := d.holdCommon(instruction)
	defer d.releaseCommon(c)
	if err := d.admit(ctx); err != nil {
		return message.Reply{Client: client.ID}, nil, err
	}
	defer d.leave()

	p := publication{dispatcher: d, common: c, instruction: instruction.ForClient(client.ID), state: state}
	for failed := 1; ; {
		out := p.try(ctx)
		switch {
		case out.again:
			continue
		case out.err == nil:
			return out.reply, out.next, nil
		case ctx.Err() != nil:
			return message.Reply{Client: client.ID}, nil, ctx.Err()
		case !out.fatal && failed < tries:
			failed++
			d.set.Log.Warn("a job failed; it is tried again", "round", instruction.Round+1, "client", client.ID,
				"reason", out.err)
			continue
		case !out.fatal:
			out.err = fmt.Errorf("%w (tried %d times)", out.err, failed)
		}

		out.err = fmt.Errorf("round %d, client %d: %w", instruction.Round+1, client.ID, out.err)
		return message.Reply{Client: client.ID}, nil, out.err
	}
}

// attempt is an attempt of a job without a result.
type attempt struct {
	ended     chan outcome
	published bool // the stream has it
}

// publication is a job of the run.
type publication struct {
	dispatcher  *Dispatcher
	id          string // of the current attempt; results of earlier ones do not count
	common      *common
	instruction message.Instruction
	state       func() (message.ClientState, error)
}

// try publishes the job and waits for its result.
func (p publication) try(ctx context.Context) outcome {
	dispatcher, ended := p.dispatcher, make(chan outcome, 1)
	p.id = rand.Text()
	dispatcher.mu.Lock()
	dispatcher.pending[p.id] = &attempt{ended: ended}
	dispatcher.mu.Unlock()
	defer func() {
		dispatcher.mu.Lock()
		defer dispatcher.mu.Unlock()
		delete(dispatcher.pending, p.id)
	}()

	alive, cancel := context.WithCancel(ctx) // waits for a server that is not available
	defer cancel()
	defer context.AfterFunc(dispatcher.alive, cancel)()
	m, own, err := p.encode(alive)
	defer dispatcher.remove(own)
	if err == nil {
		err = p.publish(alive, m)
	}

	if err != nil {
		return outcome{err: fmt.Errorf("the job: %w", cmp.Or(context.Cause(dispatcher.alive), err)), fatal: true}
	}

	select {
	case out := <-ended:
		if out.msg != nil {
			p.read(alive, &out)
		}
		return out
	case <-ctx.Done():
		return outcome{err: ctx.Err(), fatal: true}
	}
}

// encode returns the message of the job. Only then is the client's state in memory.
func (p publication) encode(ctx context.Context) (msg *nats.Msg, own content, err error) {
	defer p.dispatcher.load()()
	s, err := p.state()
	if err != nil {
		return nil, own, err
	}

	common, first, err := p.common.content(ctx)
	if err != nil {
		return nil, own, err
	}

	b, err := encodeOwn(p.instruction, s)
	if err != nil {
		return nil, own, err
	}

	own, second, err := p.dispatcher.tensors.put(ctx, b, false)
	if err != nil {
		return nil, own, err
	}

	msg, err = pack(p.dispatcher.queue.subject(jobSubject), p.id, job{withoutTensors(p.instruction), common, own},
		first, second)
	return msg, own, err
}

// publish stores the job in the stream. It waits for a server that is not available.
func (p publication) publish(ctx context.Context, msg *nats.Msg) error {
	err := wait.Retry(ctx, retryInterval, func() (bool, error) {
		_, err := p.dispatcher.tensors.js.PublishMsg(ctx, msg, jetstream.WithMsgID(p.id))
		return err != nil && ctx.Err() == nil && unavailable(err), err
	})

	if err != nil {
		return fmt.Errorf("the NATS server does not store it: %w", err)
	}

	p.dispatcher.count(func(t *Totals) {
		t.Down += int64(len(msg.Data) + len(msg.Header.Get(jsonHeader)))
		if a := p.dispatcher.pending[p.id]; a != nil {
			a.published = true
		}
	})

	return nil
}

// read decodes a result.
func (p publication) read(ctx context.Context, out *outcome) {
	var in result
	if out.err = unpack(out.msg.Header, &in); out.err != nil {
		return
	}
	defer p.dispatcher.remove(in.Tensors)

	if out.fatal = in.Fatal; in.Error != "" {
		out.err = errors.New(in.Error)
	} else {
		defer p.dispatcher.load()()
		var b []byte
		if b, _, out.err = p.dispatcher.tensors.get(ctx, in.Tensors, out.msg.Data); out.err == nil {
			out.reply, out.next, out.err = decodeResult(p.instruction, in.Reply, b)
		}
	}

	if out.err != nil && in.Host != "" {
		out.err = fmt.Errorf("worker %s: %w", in.Host, out.err)
	}

	p.dispatcher.count(func(t *Totals) {
		t.Lost += in.Deliveries - 1
		if out.err != nil {
			t.Failed++
			return
		}
		t.Jobs++
		t.Up += int64(in.Tensors.Size + len(out.msg.Header.Get(jsonHeader)))
	})
}

func (d *Dispatcher) count(change func(*Totals)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.totals)
}

// remove removes an object that is not needed any more. The object of a lost store is gone.
func (d *Dispatcher) remove(c content) {
	if c.Object == "" {
		return
	}

	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		if err := d.tensors.remove(ctx, c); err != nil {
			d.set.Log.Debug("an object remains until the end of the run", "error", err)
		}
	}()
}

// result takes the result of a job, and acknowledges it.
func (d *Dispatcher) result(msg *nats.Msg) {
	id := msg.Header.Get(idHeader)
	d.mu.Lock()
	a := d.pending[id]
	late := a == nil
	if late {
		d.totals.Late++
	} else {
		delete(d.pending, id)
		a.ended <- outcome{msg: msg}
	}

	d.mu.Unlock()
	if err := msg.Respond(nil); err != nil {
		d.set.Log.Debug("a result is not acknowledged", "error", err)
	}

	var in result
	if late && unpack(msg.Header, &in) == nil {
		d.remove(in.Tensors)
	}
}
