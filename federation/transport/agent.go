package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
)

// Part is what a client does with its orders.
type Part interface {
	// Answer does what an order asks, as engine.Worker.Answer.
	Answer(ctx context.Context, o engine.Order, s engine.State) (engine.Reply, *engine.State, error)
	// Finish gets the last shared parameters and what the client remembers in the end.
	Finish(o engine.Order, s engine.State) error
}

// Agent is the client's side of a run.
type Agent struct {
	*Invitation
	nc    *nats.Conn
	js    jetstream.JetStream
	card  Card
	part  Part
	vault vault
	log   *slog.Logger
	doing atomic.Value // string
	last  *answer      // of the newest order that was done
}

// NewAgent makes the agent of a client that remembers in the folder dir.
func NewAgent(nc *nats.Conn, inv *Invitation, card Card, dir string, part Part, log *slog.Logger) (*Agent, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	v, err := openVault(dir, inv.Run, inv.client)
	if err != nil {
		return nil, err
	}
	card.Instance, card.Run = NewID(), inv.Run
	a := &Agent{Invitation: inv, nc: nc, js: js, card: card, part: part, vault: v, log: log}
	a.doing.Store("waits")
	return a, nil
}

// errAgain asks to join once more.
var errAgain = errors.New("the server forgot this client")

// Run takes part until the run is over, or ctx is; in the end it says that it leaves.
func (a *Agent) Run(ctx context.Context) error {
	for {
		if err := a.join(ctx); err != nil {
			return err
		}
		err := a.follow(ctx)
		if !errors.Is(err, errAgain) {
			a.beat(true)
			a.nc.FlushTimeout(time.Second)
			return err
		}
		a.log.Warn("joining again", "reason", err)
	}
}

func (a *Agent) join(ctx context.Context) error {
	b, err := json.Marshal(a.card)
	if err != nil {
		return err
	}
	for {
		text, err := request(ctx, a.nc, a.subject(joinSubject, a.client), b, 10*time.Second, a.log)
		if err != nil {
			return err
		}
		var v verdict
		if err := strict(text, &v); err != nil {
			return fmt.Errorf("the server's answer: %w", err)
		}
		if v.OK {
			a.log.Info("joined", "run", a.run, "client", a.client)
			_, err := a.vault.get(v.Accepted)
			return err
		}
		if !v.Later {
			return fmt.Errorf("the server refuses this client: %s", plain(v.Reason))
		}
		a.log.Info("not yet", "reason", plain(v.Reason))
		if err := sleep(ctx, pulse); err != nil {
			return err
		}
	}
}

// beat says that the client is there, or that it leaves. Nobody waits for it, so that a lost one is no failure.
func (a *Agent) beat(leaves bool) {
	if b, err := json.Marshal(beat{a.card.Instance, a.doing.Load().(string), leaves}); err == nil {
		a.nc.Publish(a.subject(beatSubject, a.client), b)
	}
}

// follow does orders as they come.
func (a *Agent) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cons, err := a.js.Consumer(ctx, a.orders(), a.consumer(a.client))
	if err != nil {
		return a.lost(ctx, err)
	}
	inbox, gone := make(chan jetstream.Msg, 8), make(chan error, 1)
	running, err := cons.Consume(func(m jetstream.Msg) {
		select {
		case inbox <- m:
		case <-ctx.Done():
		}
	}, jetstream.PullMaxMessages(1), jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(2*time.Second),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			a.log.Debug("waiting for orders", "error", err)
			go func() {
				if err := a.missing(ctx, cons, err); err != nil {
					select {
					case gone <- err:
					default:
					}
				}
			}()
		}))
	if err != nil {
		return a.lost(ctx, err)
	}
	defer running.Stop()
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	a.beat(false)
	var now *job
	defer func() { now.stop() }()
	for {
		select {
		case m := <-inbox:
			next, err := a.receive(m)
			switch {
			case err != nil:
				return fmt.Errorf("%w: %w", errAgain, err)
			case next == nil:
			case now != nil && now.ID == next.ID && !now.ended(): // the same again: the newest message is the one to answer
				now.take(next)
			default:
				now.stop()
				now = next
				now.start(ctx, a)
			}
		case err := <-now.over():
			done := now.Kind == endKind
			now.close()
			now = nil
			if err != nil || done {
				return err
			}
		case err := <-gone:
			return a.lost(ctx, err)
		case <-ticker.C:
			a.beat(false)
			now.busy()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// missing tells whether the consumer is not there any more, as when the server began another run.
func (a *Agent) missing(ctx context.Context, cons jetstream.Consumer, err error) error {
	if errors.Is(err, nats.ErrConnectionClosed) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = cons.Info(ctx)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return nil
}

// lost tells what to do when the consumer cannot be had.
func (a *Agent) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("the connection is closed: %w", lastError(a.nc))
	}
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", errAgain, err)
}
