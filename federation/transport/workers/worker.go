package workers

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
	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// ConnOptions are those of a worker's connection, by which the NATS server knows it: its name, which it makes itself,
// and where its answers go. The NATS server of promptfed run --cluster lets nobody else use its subjects.
func ConnOptions(queue, worker string) []nats.Option {
	return []nats.Option{nats.Name(certs.WorkerUser + "-" + worker),
		nats.CustomInboxPrefix(subjects.Names(queue).ToWorker(worker))}
}

// ErrIdle tells that no run had the queue for the time that a worker waits.
var ErrIdle = errors.New("no run waits for workers")

// Worker says which runs a worker is for.
type Worker struct {
	Queue    string
	Worker   string         // its name, as NewID gives
	Program  string         // this program's version
	Identity certs.Identity // by which results are signed and runs known
	Idle     time.Duration  // how long to wait for a run; 0 for ever
	Log      *slog.Logger
}

// Ask waits for a run that has the queue, and asks it for its configuration.
func (w Worker) Ask(ctx context.Context, nc *nats.Conn) (*exchange.Invitation, error) {
	if err := subjects.CheckName(w.Queue); err != nil {
		return nil, err
	}
	parent := ctx
	if w.Idle > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.Idle)
		defer cancel()
	}
	inv, err := exchange.Invite(ctx, nc, subjects.Names(w.Queue).Slot(w.Worker, 0),
		protocol.HelloRequest{Program: w.Program}, w.Identity, LargestJob, w.Log)
	if err != nil && parent.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = ErrIdle
	}
	return inv, err
}

// Executor does what an order asks of a client that remembers s, as local.Worker.Answer.
type Executor func(ctx context.Context, client int, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error)

// ErrOver tells that the run is over, or that another one has the queue.
var ErrOver = errors.New("the run is over")

// Run does jobs of the run that invited until that is over, which gives ErrOver, or ctx is.
func (w Worker) Run(ctx context.Context, nc *nats.Conn, inv *exchange.Invitation, info Info, do Executor) error {
	who, err := w.Identity.WithKey("")
	if err != nil {
		return err
	}
	instance := subjects.NewID()
	eg, ctx := errgroup.WithContext(ctx)
	for n := range max(1, info.Jobs) {
		at, mine, log := *inv, info, w.Log.With("slot", n)
		at.Address, at.Client = subjects.Names(w.Queue).Slot(w.Worker, n), n
		mine.Worker = w.Worker
		a, err := exchange.NewClient(nc, &at, who, instance, &mine, &workerRole{host: info.Host, to: at.To, do: do,
			log: log}, log)
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
	w.Log.Info("joined a run", "run", inv.Run, "jobs", info.Jobs)
	return eg.Wait()
}

// watch looks whether the run still has the queue: one that was killed does not say that it is over.
func (w Worker) watch(ctx context.Context, nc *nats.Conn, run string) error {
	for {
		if err := exchange.Sleep(ctx, 2*exchange.HeartbeatInterval); err != nil {
			return err
		}
		if err := w.still(ctx, nc, run); err != nil {
			return err
		}
	}
}

// still waits for whoever has the queue, and gives ErrOver where that is another run.
func (w Worker) still(ctx context.Context, nc *nats.Conn, run string) error {
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
	do   Executor
	log  *slog.Logger
}

func (*workerRole) Joined(protocol.JoinReply) error { return nil }

func (w *workerRole) Accepts(o protocol.Order) error {
	if o.To != w.to {
		return errors.New("it is for another worker")
	}
	return nil
}

func (w *workerRole) Execute(ctx context.Context, a *exchange.Client, j *exchange.ActiveOrder) (*exchange.PreparedReply,
	error) {
	if j.Kind == protocol.EndKind {
		return nil, ErrOver
	}
	out, next, err := w.compute(ctx, a, j)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, exchange.ErrGone) { // somebody else did it
		return nil, nil
	}
	if err != nil {
		w.log.Error("a job failed", "round", j.Round+1, "client", j.Client, "error", err)
		err = fmt.Errorf("worker %s: %w", w.host, err)
	}
	return exchange.PrepareReply(j, out, encodeResult(out, next), err)
}

func (w *workerRole) compute(ctx context.Context, a *exchange.Client, j *exchange.ActiveOrder) (message.Reply,
	*message.ClientState, error) {
	body, err := a.Tensors(ctx, j, func(string) (*os.File, error) {
		return exchange.UnnamedFile("", "promptfed-job-*")
	})
	if err != nil {
		return message.Reply{}, nil, err
	}
	o, s, err := decodeJob(j.Order, body)
	if err != nil {
		return message.Reply{}, nil, err
	}
	j.Body, body = nil, nil
	return w.do(ctx, j.Client, o, s)
}
