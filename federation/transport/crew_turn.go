package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
)

// maxDelivered is how often a turn is begun before it counts as one that kills its workers.
const maxDelivered = 20

// do does one turn and sends its result.
func (w *Crew) do(ctx context.Context, m jetstream.Msg) {
	var o order
	body, err := unpack(checksum.verifier, turnMessage, m.Data(), &o)
	if err == nil {
		err = o.check()
	}
	if err == nil && o.Run != w.Errand.Run {
		err = fmt.Errorf("it is of run %.12s", o.Run)
	}
	if err != nil {
		w.log.Warn("a turn is put away", "reason", plain(err.Error()))
		m.Term()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		for sleep(ctx, pulse) == nil {
			m.InProgress()
		}
	}()
	err = w.finish(ctx, m, o, body)
	cancel()
	<-busy
	if err == nil {
		err = m.Ack()
	} else {
		m.NakWithDelay(time.Second)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		w.log.Warn("a turn comes again", "round", o.Round, "client", o.Client, "reason", err)
	}
}

// finish computes the result of a turn and stores it. An error means that the turn is to come again; what goes wrong in
// the turn itself is told to the run.
func (w *Crew) finish(ctx context.Context, m jetstream.Msg, o order, body []byte) error {
	r, body, err := w.result(ctx, m, o, body)
	if err != nil {
		return err
	}
	for end := time.Now().Add(maxAway); ; {
		err := w.send(ctx, &r, body)
		if err == nil || ctx.Err() != nil || !natsAway(err) || time.Now().After(end) {
			return err
		}
		w.log.Warn("a result could not be stored; trying again", "round", o.Round, "client", o.Client, "error", err)
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// maxAway is how long a NATS server may be away before a worker gives up a result: the run may be over.
const maxAway = 20 * time.Second

func (w *Crew) send(ctx context.Context, r *reply, body []byte) error {
	message, err := w.enclose(ctx, w.store, w.limit, resultMessage, r, &r.content, body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, maxAway)
	defer cancel()
	_, err = w.js.Publish(ctx, w.subject(resultSubject), message, jetstream.WithMsgID(resultID(r.ID, r.Try)))
	return err
}

// result is the header of what a turn gave, and its tensors.
func (w *Crew) result(ctx context.Context, m jetstream.Msg, o order, body []byte) (reply, []byte, error) {
	r := reply{Run: o.Run, ID: o.ID, Try: o.Try, Client: o.Client}
	out, next, err := w.compute(ctx, m, o, body)
	if ctx.Err() != nil {
		return r, nil, ctx.Err()
	}
	var again *transient
	if errors.As(err, &again) {
		return r, nil, err
	}
	if err != nil {
		w.log.Error("a turn failed", "round", o.Round, "client", o.Client, "error", err)
		r.Error = plain("worker " + w.card.Host + ": " + err.Error())
		out, next = engine.Reply{}, nil
	}
	r.N, r.Loss, r.Steps = out.Upload.N, out.Stats.Loss, out.Stats.Steps
	if engine.Kind(o.Kind).Tests() {
		r.Scores = &out.Scores
	}
	b, err := encodeResult(out, next)
	r.of(b)
	return r, b, err
}

// transient is an error that another try may not have.
type transient struct{ error }

func (w *Crew) compute(ctx context.Context, m jetstream.Msg, o order, body []byte) (engine.Reply, *engine.State,
	error) {
	if meta, err := m.Metadata(); err == nil && meta.NumDelivered > maxDelivered {
		return engine.Reply{}, nil, fmt.Errorf("round %d, client %d: %d workers began this turn and none came to its "+
			"end; does it need more memory than they have?",
			o.Round, o.Client, meta.NumDelivered-1)
	}
	if o.Object != "" {
		var err error
		if body, err = load(ctx, w.store, o.content); errors.Is(err, jetstream.ErrObjectNotFound) {
			return engine.Reply{}, nil, err // somebody else did this turn
		} else if err != nil {
			return engine.Reply{}, nil, &transient{err}
		}
	}
	in, s, err := o.decodeTurn(body)
	if err != nil {
		return engine.Reply{}, nil, err
	}
	return w.turn(ctx, o.Client, in, s)
}
