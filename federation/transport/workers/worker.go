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
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
)

// ConnOptions returns the options of a worker's connection, with the name that it chose and its inbox. The NATS server
// of promptfed run --cluster lets nobody else use its subjects.
func ConnOptions(queue, worker string) []nats.Option {
	return []nats.Option{nats.Name(certs.WorkerUser + "-" + worker),
		nats.CustomInboxPrefix(subjects.Names(queue).ToWorker(worker))}
}

// ErrIdle reports that no run owned the queue for as long as the worker waits.
var ErrIdle = errors.New("no run waits for workers")

// Worker configures the runs that a worker serves.
type Worker struct {
	Queue    string
	Worker   string         // its name, as NewID gives
	Program  string         // this program's version
	Identity certs.Identity // signs results and recognises runs
	Idle     time.Duration  // how long to wait for a run; 0 for ever
	Log      *slog.Logger
}

// FetchInvitation waits for a run that owns the queue, and requests its configuration.
func (w Worker) FetchInvitation(ctx context.Context, nc *nats.Conn) (*exchange.Invitation, error) {
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

// Executor executes an instruction for a client with state s, as client.Worker.Execute does.
type Executor func(ctx context.Context, client int, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error)

// ErrRunOver reports that the run is over, or that another run owns the queue.
var ErrRunOver = errors.New("the run is over")

// Run does jobs of the inviting run until the run is over, which returns ErrRunOver, or ctx ends.
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
			if err == nil || ctx.Err() != nil || nc.IsClosed() || errors.Is(err, ErrRunOver) {
				return err
			}
			if other := w.still(ctx, nc, inv.Run); other != nil { // refused by another run
				return other
			}
			return err
		})
	}
	eg.Go(func() error { return w.watch(ctx, nc, inv.Run) })
	w.Log.Info("joined a run", "run", inv.Run, "jobs", info.Jobs)
	return eg.Wait()
}

// watch checks whether the run still owns the queue, since a killed run does not report its end.
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

// still waits for the owner of the queue, and returns ErrRunOver if that is another run.
func (w Worker) still(ctx context.Context, nc *nats.Conn, run string) error {
	inv, err := w.FetchInvitation(ctx, nc)
	if err == nil && inv.Run != run {
		return ErrRunOver
	}
	return err
}

// workerRole is the Role of a worker's job slot, which keeps no state.
type workerRole struct {
	host string
	to   string // prefix of its subjects
	do   Executor
	log  *slog.Logger
}

func (*workerRole) Joined(protocol.JoinReply) error { return nil }

func (w *workerRole) Accepts(o protocol.Instruction) error {
	if o.To != w.to {
		return errors.New("it is for another worker")
	}
	return nil
}

func (w *workerRole) Execute(ctx context.Context, a *exchange.Client, j *exchange.ActiveInstruction) (
	*exchange.PreparedReply, error) {
	if j.Kind == protocol.EndKind {
		return nil, ErrRunOver
	}
	out, next, err := w.compute(ctx, a, j)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, exchange.ErrGone) { // another worker did it
		return nil, nil
	}
	if err != nil {
		w.log.Error("a job failed", "round", j.Round+1, "client", j.Client, "error", err)
		err = fmt.Errorf("worker %s: %w", w.host, err)
	}
	return exchange.PrepareReply(j, out, encodeResult(out, next), err)
}

func (w *workerRole) compute(ctx context.Context, a *exchange.Client, j *exchange.ActiveInstruction) (message.Reply,
	*message.ClientState, error) {
	body, err := a.Tensors(ctx, j, func(string) (*os.File, error) {
		return exchange.TemporaryFile("", "promptfed-job-*")
	})
	if err != nil {
		return message.Reply{}, nil, err
	}
	o, s, err := decodeJob(j.Instruction, body)
	if err != nil {
		return message.Reply{}, nil, err
	}
	j.Body, body = nil, nil
	return w.do(ctx, j.Client, o, s)
}
