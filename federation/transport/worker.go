package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"promptfed/federation/engine/message"
)

// WorkerOptions are those of a worker's connection, by which the NATS server knows it: its name, which it makes itself,
// and where its answers go. The NATS server of promptfed run --cluster lets nobody else use its subjects.
func WorkerOptions(queue, worker string) []nats.Option {
	return []nats.Option{nats.Name(WorkerUser + "-" + worker), nats.CustomInboxPrefix(names{queue}.toWorker(worker))}
}

// ErrIdle tells that no run had the queue for the time that a worker waits.
var ErrIdle = errors.New("no run wants workers")

// Work says which runs a worker is for.
type Work struct {
	Queue    string
	Worker   string        // its name, as NewID gives
	Program  string        // this program's version
	Identity Identity      // by which results are signed and runs known
	Idle     time.Duration // how long to wait for a run; 0 for ever
	Log      *slog.Logger
}

// Ask waits for a run that has the queue, and asks it for its configuration.
func (w Work) Ask(ctx context.Context, nc *nats.Conn) (*Invitation, error) {
	if err := CheckName(w.Queue); err != nil {
		return nil, err
	}
	parent := ctx
	if w.Idle > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.Idle)
		defer cancel()
	}
	inv, err := invite(ctx, nc, names{w.Queue}.slot(w.Worker, 0), question{Program: w.Program}, w.Identity, w.Log)
	if err != nil && parent.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = ErrIdle
	}
	return inv, err
}

// Job does what an order asks of a client that remembers s, as engine.Worker.Answer.
type Job func(ctx context.Context, client int, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error)

// ErrOver tells that the run is over, or that another one has the queue.
var ErrOver = errors.New("the run is over")

// Run does jobs of the run that invited until that is over, which gives ErrOver, or ctx is.
func (w Work) Run(ctx context.Context, nc *nats.Conn, inv *Invitation, info WorkerInfo, do Job) error {
	who, err := w.Identity.keyed("")
	if err != nil {
		return err
	}
	instance := NewID()
	eg, ctx := errgroup.WithContext(ctx)
	for n := range max(1, info.Jobs) {
		at, mine, log := *inv, info, w.Log.With("slot", n)
		at.subjects, at.client = names{w.Queue}.slot(w.Worker, n), n
		mine.Worker = w.Worker
		a, err := newAgent(nc, &at, who, instance, &mine, &workerRole{host: info.Host, to: at.to, do: do, log: log},
			log)
		if err != nil {
			return err
		}
		eg.Go(func() error {
			err := a.Run(ctx)
			if err == nil || ctx.Err() != nil || nc.IsClosed() || errors.Is(err, ErrOver) {
				return err
			}
			if other := w.still(ctx, nc, inv.Run); other != nil { // it is another run that refuses
				return other
			}
			return err
		})
	}
	eg.Go(func() error { return w.watch(ctx, nc, inv.Run) })
	w.Log.Info("takes part", "run", inv.Run, "jobs", info.Jobs)
	return eg.Wait()
}

// watch looks whether the run still has the queue: one that was killed does not say that it is over.
func (w Work) watch(ctx context.Context, nc *nats.Conn, run string) error {
	for {
		if err := sleep(ctx, 2*pulse); err != nil {
			return err
		}
		if err := w.still(ctx, nc, run); err != nil {
			return err
		}
	}
}

// still waits for whoever has the queue, and gives ErrOver where that is another run.
func (w Work) still(ctx context.Context, nc *nats.Conn, run string) error {
	inv, err := w.Ask(ctx, nc)
	if err == nil && inv.Run != run {
		return ErrOver
	}
	return err
}

// workerRole is that of an agent that does jobs, one after the other: nothing of them stays.
type workerRole struct {
	host string
	to   string // what its subjects begin with
	do   Job
	log  *slog.Logger
}

func (*workerRole) joined(verdict) error { return nil }

func (w *workerRole) mine(o order) error {
	if o.To != w.to {
		return errors.New("it is for another worker")
	}
	return nil
}

func (w *workerRole) work(ctx context.Context, a *Agent, j *job) (*answer, error) {
	if j.Kind == endKind {
		return nil, ErrOver
	}
	out, next, err := w.compute(ctx, a, j)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, errGone) { // somebody else did it
		return nil, nil
	}
	if err != nil {
		w.log.Error("a job failed", "round", j.Round, "client", j.Client, "error", err)
		err = fmt.Errorf("worker %s: %w", w.host, err)
	}
	return answered(j, out, result(out, next), err)
}

func (w *workerRole) compute(ctx context.Context, a *Agent, j *job) (message.Reply, *message.ClientState, error) {
	body, err := a.content(ctx, j, func(string) (*os.File, error) { return nameless("", "promptfed-job-*") })
	if err != nil {
		return message.Reply{}, nil, err
	}
	o, s, err := j.order.decodeJob(body)
	if err != nil {
		return message.Reply{}, nil, err
	}
	j.body, body = nil, nil
	return w.do(ctx, j.Client, o, s)
}
