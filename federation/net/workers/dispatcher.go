package workers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/wait"
	"promptfed/runtime/numerics"
)

// Settings configure a Dispatcher.
type Settings struct {
	Queue         string // one run at a time owns it
	Config        []byte // the run's configuration for workers
	Compatibility spec.Compatibility
	Limit         int // largest size of tensors inside a message, in bytes; 0 for DefaultLimit
	Log           *slog.Logger
}

// Dispatcher is a client.RemoteExecutor that distributes the jobs of simulated clients over worker machines. A job is
// an instruction with the client's state, so every worker computes the same result, which counts once. JetStream
// delivers the job of a lost worker to another one.
type Dispatcher struct {
	set     Settings
	queue   queue
	run     string // identity of the run
	conn    *nats.Conn
	tensors tensorStore
	loading chan struct{} // limits how many clients' tensors are encoded or decoded at the same time
	stop    context.CancelFunc
	over    sync.WaitGroup  // goroutines to wait for
	alive   context.Context // ends, with the reason, when the run can get no more results
	kill    context.CancelCauseFunc

	mu      sync.Mutex
	free    *sync.Cond          // a job may be published
	pending map[string]*attempt // by identity
	jobs    int                 // that were admitted and have not ended
	commons []*common           // of the current instructions
	opened  int                 // how often the stream was made
	members map[string]*member  // present workers
	known   map[string]bool     // workers that took part
	totals  Totals
}

// Totals are counts since the dispatcher was opened.
type Totals struct {
	Jobs    int   // with an accepted result
	Late    int   // repeated results, dropped
	Failed  int   // failed attempts
	Lost    int   // deliveries of a job to a worker that left or was lost
	Workers int   // that took part
	Down    int64 // bytes to workers
	Up      int64 // bytes from workers that counted
	// Other numerics of workers than the run's; with any, the run's bytes are not promised.
	Numerics []numerics.Fingerprint
}

// maxLoading is how many clients' tensors are encoded or decoded at the same time.
const maxLoading = 4

var _ client.RemoteExecutor = (*Dispatcher)(nil)

// Open claims a queue for a run, and removes what an earlier run left in it.
func Open(ctx context.Context, nc *nats.Conn, set Settings) (*Dispatcher, error) {
	if err := CheckQueue(set.Queue); err != nil {
		return nil, err
	}

	dispatcher := &Dispatcher{set: set, queue: queue(set.Queue), run: rand.Text(), conn: nc,
		loading: make(chan struct{}, maxLoading), pending: map[string]*attempt{},
		members: map[string]*member{}, known: map[string]bool{}}
	dispatcher.free = sync.NewCond(&dispatcher.mu)
	dispatcher.alive, dispatcher.kill = context.WithCancelCause(context.WithoutCancel(ctx))
	var err error
	if dispatcher.tensors, err = newTensorStore(nc, dispatcher.queue, set.Limit); err != nil {
		return nil, err
	}

	if _, err := request(ctx, nc, dispatcher.queue.subject(inviteSubject), nil, requestTimeout/10); err == nil {
		return nil, dispatcher.taken()
	}

	if err := dispatcher.createStreams(ctx); err != nil {
		return nil, err
	}

	var subscribed []*nats.Subscription
	for subject, handle := range map[string]nats.MsgHandler{inviteSubject: dispatcher.invite,
		joinSubject:   dispatcher.join,
		resultSubject: dispatcher.result} {
		s, err := nc.Subscribe(dispatcher.queue.subject(subject), handle)
		if err == nil {
			err = s.SetPendingLimits(-1, -1)
		}
		if err != nil {
			return nil, err
		}
		subscribed = append(subscribed, s)
	}

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	dispatcher.stop = func() {
		cancel()
		for _, s := range subscribed {
			s.Unsubscribe()
		}
	}

	dispatcher.over.Go(func() { dispatcher.watch(ctx) })
	return dispatcher, nc.Flush()
}

func (d *Dispatcher) taken() error {
	return fmt.Errorf("another run uses the queue %q on this NATS server; wait for it, or choose another --queue",
		d.queue)
}

// Close ends the run for its workers, which abort their jobs and wait for the next run.
func (d *Dispatcher) Close() {
	d.stop()
	d.over.Wait()
	err := d.conn.Publish(d.queue.subject(endSubject), []byte(d.run))
	if err == nil && d.alive.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		err = d.deleteStreams(ctx)
	}

	if err != nil {
		d.set.Log.Warn("the queue could not be removed; the next run of this queue removes it", "error", err)
	}
}

// Totals returns the counts so far.
func (d *Dispatcher) Totals() Totals {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.totals
	t.Workers, t.Numerics = len(d.known), slices.Clone(t.Numerics)
	return t
}

// admit waits until a worker will soon have a slot for one more job, so that few clients' states are in memory.
func (d *Dispatcher) admit(ctx context.Context) error {
	defer context.AfterFunc(ctx, d.free.Broadcast)()
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if err := errors.Join(ctx.Err(), context.Cause(d.alive)); err != nil {
			return err
		}
		if d.jobs < d.capacity() {
			break
		}
		d.free.Wait()
	}

	d.jobs++
	return nil
}

// capacity returns how many unfinished jobs there may be: the slots of all workers, and a quarter as many that are
// ready when a slot becomes free. mu must be held.
func (d *Dispatcher) capacity() int {
	n := 0
	for _, m := range d.members {
		n += m.Jobs
	}
	return n + n/4
}

// leave ends the job of admit.
func (d *Dispatcher) leave() {
	d.mu.Lock()
	d.jobs--
	d.mu.Unlock()
	d.free.Signal()
}

// load waits until a client's tensors may be in memory; few clients' are at a time. They may until release is called.
func (d *Dispatcher) load() (release func()) {
	d.loading <- struct{}{}
	return func() { <-d.loading }
}

// watch checks workers and streams every second. A run whose server keeps its connection, but has no JetStream for
// lostTime, ends.
func (d *Dispatcher) watch(ctx context.Context) {
	worked := time.Now()
	for wait.For(ctx, time.Second) == nil {
		d.removeSilent()
		err := d.checkStreams(ctx)
		if err == nil || !d.conn.IsConnected() {
			worked = time.Now()
		} else if time.Since(worked) > lostTime {
			d.fail(fmt.Errorf("the NATS server has had no JetStream for %v, as when its disk is full; make it "+
				"available and continue with --resume: %w", lostTime, err))
		}
	}
}

// lostTime is how long a run waits for a server that is connected and has no JetStream.
const lostTime = time.Minute

// fail ends the run.
func (d *Dispatcher) fail(err error) {
	d.mu.Lock()
	d.kill(err)
	d.mu.Unlock()
	d.free.Broadcast()
	d.toAll(outcome{err: err, fatal: true})
}
