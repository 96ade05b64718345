package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine"
)

// Errand is a run that wants workers.
type Errand struct {
	Run    string // identity
	Config []byte
	limit  int
	idle   time.Duration
	queue
}

// ErrIdle tells that no run had the queue for the time that a worker waits.
var ErrIdle = errors.New("no run wants workers")

// AskErrand waits for a run that has the queue, unless idle is 0 no longer than that, and asks for its configuration.
// program is this program's version.
func AskErrand(ctx context.Context, nc *nats.Conn, name, program string, idle time.Duration, log *slog.Logger) (*Errand,
	error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	parent := ctx
	if idle > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, idle)
		defer cancel()
	}
	q := queue{name}
	b, err := json.Marshal(greeting{Version, program})
	if err != nil {
		return nil, err
	}
	if b, err = request(ctx, nc, q.subject(helloSubject), b, 2*time.Second, log); err != nil {
		if parent.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = ErrIdle
		}
		return nil, err
	}
	if err := refusal(b); err != nil {
		return nil, err
	}
	var o offer
	if err := strict(b, &o); err != nil {
		return nil, fmt.Errorf("the run's answer: %w", err)
	}
	if !hash.MatchString(o.Run) || o.Limit < 1 {
		return nil, errors.New("the run's answer makes no sense")
	}
	return &Errand{Run: o.Run, Config: o.Config, limit: o.Limit, idle: idle, queue: q}, nil
}

// refusal is what a verdict says against a worker.
func refusal(b []byte) error {
	var v verdict
	if strict(b, &v) == nil && !v.OK && v.Reason != "" {
		return fmt.Errorf("the run refuses this worker: %s", plain(v.Reason))
	}
	return nil
}

// Turn does what an order asks of a client that remembers s, as engine.Worker.Answer.
type Turn func(ctx context.Context, client int, o engine.Order, s engine.State) (engine.Reply, *engine.State, error)

// Crew is a worker machine: it does turns of a run, several at a time.
type Crew struct {
	*Errand
	nc    *nats.Conn
	js    jetstream.JetStream
	store jetstream.ObjectStore
	card  WorkCard
	turn  Turn
	log   *slog.Logger
	look  sync.Mutex
}

// NewCrew makes a worker of an errand.
func NewCrew(nc *nats.Conn, e *Errand, card WorkCard, turn Turn, log *slog.Logger) (*Crew, error) {
	js, err := jetstream.New(nc)
	card.Instance = NewID()
	return &Crew{Errand: e, nc: nc, js: js, card: card, turn: turn, log: log}, err
}

// ErrOver tells that the run is over, or that another one has the queue.
var ErrOver = errors.New("the run is over")

// Run does turns until the run is over, which gives ErrOver, or ctx is.
func (w *Crew) Run(ctx context.Context) error {
	b, err := json.Marshal(w.card)
	if err != nil {
		return err
	}
	if b, err = request(ctx, w.nc, w.subject(joinSubject), b, 10*time.Second, w.log); err != nil {
		return err
	}
	if err := refusal(b); err != nil {
		return err
	}
	w.log.Info("takes part", "run", w.Errand.Run, "jobs", w.card.Jobs)
	cons, err := w.js.Consumer(ctx, w.turns(), w.consumer(w.Errand.Run))
	if err == nil {
		w.store, err = w.js.ObjectStore(ctx, w.bucket())
	}
	if err != nil {
		if err := w.still(ctx); err != nil {
			return err
		}
		return fmt.Errorf("queue %s: %w", w.name, err)
	}
	eg, ctx := errgroup.WithContext(ctx)
	for range w.card.Jobs {
		eg.Go(func() error { return w.pull(ctx, cons) })
	}
	return eg.Wait()
}

// pull does one turn after the other.
func (w *Crew) pull(ctx context.Context, cons jetstream.Consumer) error {
	for {
		one, cancel := context.WithTimeout(ctx, 20*time.Second)
		m, err := cons.Next(jetstream.FetchContext(one), jetstream.FetchHeartbeat(2*time.Second))
		cancel()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				m.Nak()
			}
			return ctx.Err()
		case err == nil:
			w.do(ctx, m)
		case errors.Is(err, nats.ErrConnectionClosed):
			return fmt.Errorf("%w: %w", err, lastError(w.nc))
		case !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded):
			w.log.Debug("waiting for turns", "error", err)
			if err := sleep(ctx, 200*time.Millisecond); err != nil {
				return err
			}
			if err := w.still(ctx); err != nil {
				return err
			}
		}
	}
}

// still waits for whoever has the queue, and tells when that is another run.
func (w *Crew) still(ctx context.Context) error {
	w.look.Lock()
	defer w.look.Unlock()
	e, err := AskErrand(ctx, w.nc, w.name, w.card.Footing.Program, w.idle, w.log)
	if err == nil && e.Run != w.Errand.Run {
		return ErrOver
	}
	return err
}
