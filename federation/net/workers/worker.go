package workers

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/wait"
)

// ErrIdle reports that no run owned the queue for as long as the worker waits.
var ErrIdle = errors.New("no run waits for workers")

// ErrRunOver reports that the run is over, or that another run owns the queue.
var ErrRunOver = errors.New("the run is over")

// Worker configures the runs that a worker serves.
type Worker struct {
	Queue   string
	Program string        // this program's version
	Idle    time.Duration // how long to wait for a run; 0 for ever
	Log     *slog.Logger
}

// Executor executes an instruction for a client with state s, as client.Worker.Execute does.
type Executor func(ctx context.Context, client int, instruction message.Instruction,
	s message.ClientState) (message.Reply, *message.ClientState, error)

// FetchInvitation waits for a run that owns the queue, and requests its configuration.
func (w Worker) FetchInvitation(ctx context.Context, nc *nats.Conn) (*Invitation, error) {
	if err := CheckQueue(w.Queue); err != nil {
		return nil, err
	}

	a, err := w.ask(ctx, nc, inviteSubject, question{w.Program})
	if err == nil && a.Refused != "" {
		err = errors.New(a.Refused)
	}

	if err != nil {
		return nil, err
	}

	return &a.Invitation, nil
}

// ask repeats a request until a run that owns the queue answers. It returns ErrIdle after Idle without an answer.
func (w Worker) ask(ctx context.Context, nc *nats.Conn, subject string, v any) (reply answer, err error) {
	began := time.Now()
	err = wait.Retry(ctx, retryInterval, func() (bool, error) {
		var err error
		reply, err = request(ctx, nc, queue(w.Queue).subject(subject), v, requestTimeout)
		switch {
		case err == nil || nc.IsClosed():
			return false, err
		case ctx.Err() != nil:
			return false, ctx.Err()
		case w.Idle > 0 && time.Since(began) >= w.Idle:
			return false, ErrIdle
		}
		return true, nil
	})

	return reply, err
}

// Run executes jobs of the inviting run until the run is over, which returns ErrRunOver, or ctx ends.
func (w Worker) Run(ctx context.Context, nc *nats.Conn, inv *Invitation, info Info, do Executor) error {
	session := &session{worker: w, queue: queue(w.Queue), conn: nc, info: info, do: do}
	session.info.Run, session.info.Worker = inv.Run, rand.Text()
	var err error
	if session.tensors, err = newTensorStore(nc, session.queue, 0); err != nil {
		return err
	}

	over := make(chan *nats.Msg, 1)
	sub, err := nc.ChanSubscribe(session.queue.subject(endSubject), over)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()

	if err := session.join(ctx); err != nil {
		return err
	}

	w.Log.Info("joined a run", "run", inv.Run, "jobs", info.Jobs)
	eg, running := errgroup.WithContext(ctx)
	eg.Go(func() error { return session.heartbeats(running) })
	eg.Go(func() error {
		for {
			select {
			case m := <-over:
				if string(m.Data) == inv.Run {
					return ErrRunOver
				}
			case <-running.Done():
				return nil
			}
		}
	})

	for range info.Jobs {
		eg.Go(func() error { return session.work(running) })
	}

	if err = eg.Wait(); !errors.Is(err, ErrRunOver) && !nc.IsClosed() {
		session.leave()
	}

	return err
}

// session is a worker's part in a run.
type session struct {
	worker  Worker
	queue   queue
	conn    *nats.Conn
	info    Info
	do      Executor
	tensors tensorStore
	shared  sharedTensors
}

// join asks the run to admit the worker, until the run answers or another run owns the queue. A run that is away for
// Idle ends the worker.
func (s *session) join(ctx context.Context) error {
	a, err := s.worker.ask(ctx, s.conn, joinSubject, s.info)
	switch {
	case err != nil:
		return err
	case a.Run != s.info.Run:
		return ErrRunOver
	case a.Refused != "":
		return errors.New(a.Refused)
	}

	return nil
}

// heartbeats repeats the request to join, which also finds out whether the run still owns the queue: a killed run does
// not report its end.
func (s *session) heartbeats(ctx context.Context) error {
	for {
		if err := wait.For(ctx, heartbeatInterval); err != nil {
			return err
		}
		if err := s.join(ctx); err != nil {
			return err
		}
	}
}

// leave reports that the worker stops.
func (s *session) leave() {
	s.info.Leaves = true
	if _, err := request(context.Background(), s.conn, s.queue.subject(joinSubject), s.info, time.Second); err != nil {
		s.worker.Log.Debug("the run does not know that this worker leaves", "error", err)
	}
}
