package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/subjects"
	"promptfed/runtime/numerics"
)

// Settings configure a Dispatcher.
type Settings struct {
	Queue         string // its name in subjects; one run at a time owns it
	Dir           string // folder of tensors in transfer; empty for the folder of temporary files
	Config        []byte // the run's configuration for workers
	Compatibility spec.Compatibility
	Identity      certs.Identity // signs instructions and recognises workers
	Limit         int            // largest size of tensors inside a message, in bytes; 0 for DefaultLimit
	// Largest is the largest size of tensors to or from a worker, in bytes; 0 for LargestJob.
	Largest int
	Log     *slog.Logger
}

// LargestJob is the default of Settings.Largest: an instruction and a client's state, each of the default size.
const LargestJob = 4 * exchange.DefaultLargest

// Dispatcher is a client.RemoteExecutor that distributes the jobs of simulated clients over worker machines. A worker
// has a slot for each concurrent job, and every slot is a member of the run with its own address. A job is an
// instruction with the client's state, so every worker computes the same result, which counts once. The job of a lost
// worker goes to another one.
type Dispatcher struct {
	*exchange.Host
	subjects.Names
	set  Settings
	jobs chan *job // waiting for a slot

	// guarded by Host.Mu
	slots   map[string]*slot     // by prefix of their subjects
	heard   map[string]time.Time // by worker
	workers map[string]bool      // that took part
	totals  Totals
}

// Totals are counts since the dispatcher was opened.
type Totals struct {
	Jobs    int   // with an accepted result
	Late    int   // repeated results, dropped
	Failed  int   // failed attempts
	Lost    int   // jobs whose worker left or was lost
	Workers int   // that took part
	Down    int64 // bytes to workers, with headers
	Up      int64 // bytes from workers that counted, with headers
	// Other numerics of workers than the run's; with any, the run's bytes are not promised.
	Numerics []numerics.Fingerprint
}

// maxSlots is the largest number of slots of all workers together.
const maxSlots = 1 << 14

// Open claims a queue for a run.
func Open(ctx context.Context, nc *nats.Conn, set Settings) (*Dispatcher, error) {
	if err := subjects.CheckName(set.Queue); err != nil {
		return nil, err
	}
	if set.Largest <= 0 {
		set.Largest = LargestJob
	}
	d := &Dispatcher{Names: subjects.Names(set.Queue), set: set, jobs: make(chan *job), slots: map[string]*slot{},
		heard: map[string]time.Time{}, workers: map[string]bool{},
		Host: exchange.NewHost(nc, subjects.NewID(), set.Limit, set.Largest, set.Dir, set.Log)}
	if err := d.UseKey(set.Identity, ""); err != nil {
		return nil, err
	}
	if other, err := d.another(ctx); other || err != nil {
		return nil, errors.Join(err, fmt.Errorf("another run uses the queue %q on this NATS server; wait for it, or "+
			"choose another --queue", set.Queue))
	}
	if _, err := d.Subscribe(d.FromWorker("*")+".>", d.handle); err != nil {
		return nil, err
	}
	d.EverySecond(d.watch)
	return d, nc.Flush()
}

// another reports whether a run owns the queue, by asking like a worker.
func (d *Dispatcher) another(ctx context.Context) (bool, error) {
	at := d.Slot(subjects.NewID(), 0)
	return exchange.Responds(ctx, d.Conn, at.Verb(subjects.HelloVerb), at.Inbox)
}

// Close ends the run for its workers, which abort their jobs and wait for the next run.
func (d *Dispatcher) Close() {
	d.Mu.Lock()
	for _, s := range d.slots {
		if s.Key.Key != nil {
			s.sendEnd()
		}
	}
	d.Mu.Unlock()
	d.Stop()
}

// Totals returns the counts so far.
func (d *Dispatcher) Totals() Totals {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	t := d.totals
	t.Workers, t.Late = len(d.workers), int(d.Counters.Late.Load())
	t.Down, t.Up, t.Numerics = d.Counters.Down.Load(), d.Counters.Up.Load(), slices.Clone(t.Numerics)
	return t
}

// handle passes a message to its slot.
func (d *Dispatcher) handle(m *nats.Msg) {
	worker, n, ok := subjects.WorkerOf(m.Subject)
	if !ok {
		return
	}
	at := d.Slot(worker, n)
	d.Mu.Lock()
	s := d.slots[at.From]
	if s == nil && len(d.slots) < maxSlots {
		s = d.newSlot(at, worker, n)
		d.slots[at.From] = s
		go s.listen()
	}
	d.heard[worker] = time.Now()
	d.Mu.Unlock()
	if s == nil {
		return
	}
	select {
	case s.queue <- m:
	default:
		s.Counters.Dropped.Add(1)
	}
}

// watch removes silent workers, except while there is no NATS server.
func (d *Dispatcher) watch() {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	for _, s := range d.slots {
		if at := d.heard[s.worker]; !d.Conn.IsConnected() {
			d.heard[s.worker] = time.Now()
		} else if time.Since(at) >= exchange.PresenceTimeout {
			s.release("a worker does not answer any more")
		}
	}
	for worker, at := range d.heard {
		if time.Since(at) >= exchange.PresenceTimeout {
			delete(d.heard, worker)
		}
	}
}

var _ client.RemoteExecutor = (*Dispatcher)(nil)

const (
	tries   = 3  // failures of a job before the run fails
	maxLost = 20 // workers lost with one job before the job counts as the cause
)

// job is a job to do.
type job struct {
	ctx    context.Context
	order  message.Instruction
	client int
	state  func() (message.ClientState, error)
	done   chan outcome // one outcome for each slot that takes the job
}

// outcome is how a job ended.
type outcome struct {
	reply message.Reply
	next  *message.ClientState
	err   error
	fatal bool // it would fail on every worker
	lost  bool // the worker was lost
}

// Execute executes an instruction on a worker.
func (d *Dispatcher) Execute(ctx context.Context, client *spec.Client, o message.Instruction,
	state func() (message.ClientState, error)) (message.Reply, *message.ClientState, error) {
	a := &job{ctx: ctx, order: o, client: client.ID, state: state, done: make(chan outcome, 1)}
	for failed, lost := 0, 0; ; {
		var out outcome
		select {
		case d.jobs <- a:
			out = <-a.done
		case <-ctx.Done():
			out.err, out.fatal = ctx.Err(), true
		}
		if out.lost {
			if lost++; lost < maxLost {
				continue
			}
			out.err, out.fatal = fmt.Errorf("round %d, client %d: %d workers started this job and none finished it; "+
				"it may need more memory than they have", o.Round+1, client.ID, lost), true
		}
		if out.err == nil {
			return out.reply, out.next, nil
		}
		if failed++; failed == tries && !out.fatal {
			out.err = fmt.Errorf("%w (tried %d times)", out.err, failed)
			out.fatal = true
		}
		if out.fatal {
			return message.Reply{Client: client.ID}, nil, out.err
		}
		d.Log.Warn("a job failed; it is tried again", "round", o.Round+1, "client", client.ID, "reason", out.err)
	}
}
