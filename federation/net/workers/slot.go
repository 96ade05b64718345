package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wait"
	"promptfed/runtime/tensor"
)

// pullTime is how long one request for a job lasts. A request is lost with the server that has it.
const pullTime = 5 * time.Second

// work executes jobs, one after the other.
func (s *session) work(ctx context.Context) error {
	var from jetstream.Consumer
	for {
		m, err := s.pull(ctx, &from)
		switch {
		case m != nil:
			s.execute(ctx, m)
		case ctx.Err() != nil:
			return ctx.Err()
		case s.conn.IsClosed():
			return err
		case err != nil: // the heartbeats find out whether the run is over
			s.worker.Log.Debug("no job", "error", err)
			if err := wait.For(ctx, retryInterval); err != nil {
				return err
			}
		}
	}
}

// pull waits for a job; nil for none.
func (s *session) pull(ctx context.Context, from *jetstream.Consumer) (msg jetstream.Msg, err error) {
	ctx, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	if *from == nil {
		if *from, err = s.tensors.js.Consumer(ctx, s.queue.stream(), s.info.Run); err != nil {
			return nil, err
		}
	}

	msg, err = (*from).Next(jetstream.FetchContext(ctx))
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		err = nil
	}

	return msg, err
}

// execute executes a job and sends its result. A worker that stops gives the job back.
func (s *session) execute(ctx context.Context, msg jetstream.Msg) {
	busy, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	go func() { // the job is delivered to another worker if this one is silent
		for wait.For(busy, heartbeatInterval) == nil {
			msg.InProgress()
		}
	}()
	r, tensors, err := s.compute(ctx, msg)
	if err == nil {
		err = s.send(ctx, msg, r, tensors)
	}

	if err != nil {
		msg.NakWithDelay(retryInterval)
		return
	}

	msg.Ack()
}

// compute returns the result of a job, and its encoded tensors. An error gives the job back: the worker stops, or the
// tensors are gone, since the job is over or the server lost them.
func (s *session) compute(ctx context.Context, msg jetstream.Msg) (result, []byte, error) {
	var job job
	result, body, err := result{Deliveries: 1}, []byte(nil), unpack(msg.Headers(), &job)
	if meta, e := msg.Metadata(); e == nil {
		result.Deliveries = int(meta.NumDelivered)
	}

	if result.Deliveries > maxLost {
		result.Fatal, result.Error = true,
			fmt.Sprintf("%d workers started this job and none finished it; it may need more "+
				"memory than they have", maxLost)
		return result, nil, nil
	}

	if err == nil {
		result.Reply, body, err = s.executeJob(ctx, job, msg.Data())
	}

	if ctx.Err() != nil || errors.Is(err, jetstream.ErrObjectNotFound) {
		return result, nil, errors.Join(ctx.Err(), err)
	}

	var inline []byte
	if err == nil {
		result.Tensors, inline, err = s.tensors.put(ctx, body, false)
	}

	if err != nil {
		s.worker.Log.Error("a job failed", "round", job.Instruction.Round+1, "clients", job.Instruction.Clients,
			"error", err)
		result.Error = err.Error()
	}

	result.Host = s.info.Host
	return result, inline, ctx.Err()
}

func (s *session) executeJob(ctx context.Context, job job, data []byte) (reply message.Reply, body []byte, err error) {
	if len(job.Instruction.Clients) != 1 {
		return reply, nil, fmt.Errorf("a job for %d clients", len(job.Instruction.Clients))
	}

	common, data, err := s.shared.get(ctx, s.tensors, job.Common, data)
	if err != nil {
		return reply, nil, err
	}

	own, _, err := s.tensors.get(ctx, job.Own, data)
	if err != nil {
		return reply, nil, err
	}

	instruction, state, err := decodeJob(job.Instruction, common, own)
	if err != nil {
		return reply, nil, err
	}

	out, next, err := s.do(ctx, instruction.Clients[0], instruction, state)
	if err != nil {
		return reply, nil, err
	}

	return encodeResult(out, next)
}

// send sends a result until the run acknowledges it.
func (s *session) send(ctx context.Context, m jetstream.Msg, r result, tensors []byte) error {
	subject, id := s.queue.subject(resultSubject), m.Headers().Get(idHeader)
	out, err := pack(subject, id, r, tensors)
	if err != nil { // JSON has no infinite numbers
		r = result{Host: r.Host, Deliveries: r.Deliveries, Error: fmt.Sprintf("the loss or a statistic is not finite; "+
			"lower train.lr or set train.clip_norm (%v)", err)}
		out, err = pack(subject, id, r)
	}

	if err != nil {
		return err
	}

	return wait.Retry(ctx, retryInterval, func() (bool, error) {
		attempt, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		_, err := s.conn.RequestMsgWithContext(attempt, out)
		return err != nil && !s.conn.IsClosed(), err
	})
}

// sharedTensors keeps the newest tensors that several jobs share.
type sharedTensors struct {
	mu   sync.Mutex
	list []*sharedEntry
}

type sharedEntry struct {
	digest  string
	mu      sync.Mutex
	tensors tensor.Map // nil until they were read
}

// keptShared is how many shared tensors a worker keeps: those of an instruction, and of the one before.
const keptShared = 2

// get returns decoded tensors and the rest of a message's data. Objects with a digest are read once.
func (s *sharedTensors) get(ctx context.Context, from tensorStore, content content, data []byte) (tensor.Map, []byte,
	error) {
	entry := &sharedEntry{digest: content.Digest}
	if content.Digest != "" {
		s.mu.Lock()
		if i := slices.IndexFunc(s.list, func(e *sharedEntry) bool { return e.digest == content.Digest }); i >= 0 {
			entry = s.list[i]
		} else {
			s.list = append([]*sharedEntry{entry}, s.list[:min(len(s.list), keptShared-1)]...)
		}
		s.mu.Unlock()
	}

	entry.mu.Lock()
	defer entry.mu.Unlock()
	if entry.tensors != nil {
		return entry.tensors, data, nil
	}

	b, rest, err := from.get(ctx, content, data)
	if err == nil {
		entry.tensors, err = message.DecodeTensors(b)
	}

	return entry.tensors, rest, err
}
