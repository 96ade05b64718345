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
	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/subjects"
	"promptfed/runtime/numerics"
)

// Settings say what a run tells its workers.
type Settings struct {
	Queue         string // its name, in subjects; one run at a time has it
	Dir           string // of tensors on their way; empty for that of temporary files
	Config        []byte // of the run, as workers open it
	Compatibility spec.Compatibility
	Identity      certs.Identity // by which orders are signed and workers known
	Limit         int            // bytes of tensors that travel in a message; 0 for DefaultLimit
	// bytes of tensors that are taken from a worker, or given to one, at most; 0 for LargestJob
	Largest int
	Log     *slog.Logger
}

// LargestJob is the default of Settings.Largest: an order and what the client remembers, twice the size of
// each on its own.
const LargestJob = 4 * exchange.DefaultLargest

// Dispatcher is a client.RemoteExecutor: it spreads the jobs of simulated clients over worker machines. A worker has as
// many slots as it does jobs at a time, and every slot is a member of the run, which speaks and hears as a client does.
// A job is an order with what the client remembers, so that any worker can do it, and whoever does gives the same
// result, which counts once. One whose worker was missed goes to another.
type Dispatcher struct {
	*exchange.Host
	subjects.Names
	set  Settings
	jobs chan *job // that no slot has yet

	// guarded by Host.Mu
	slots   map[string]*slot     // by what their subjects begin with
	heard   map[string]time.Time // by worker
	workers map[string]bool      // that took part
	totals  Totals
}

// Totals are counted since the dispatcher was opened.
type Totals struct {
	Jobs    int   // that counted
	Late    int   // results that came again, dropped
	Failed  int   // tries
	Lost    int   // jobs whose worker left or was missed
	Workers int   // that took part
	Down    int64 // bytes to workers, with headers
	Up      int64 // bytes from workers that counted, with headers
	// of workers that took part, where they are not the run's; the run's bytes are promised only where there are none
	Numerics []numerics.Fingerprint
}

// maxSlots bounds how many slots workers may have together.
const maxSlots = 1 << 14

// Open takes a queue for a run.
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

// another tells whether a run has the queue: it asks as a worker does.
func (d *Dispatcher) another(ctx context.Context) (bool, error) {
	at := d.Slot(subjects.NewID(), 0)
	return exchange.Responds(ctx, d.Conn, at.Verb(subjects.HelloVerb), at.Inbox)
}

// Close ends the run for its workers: they give up what they are at and wait for the next one.
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

// Totals are the dispatcher's so far.
func (d *Dispatcher) Totals() Totals {
	d.Mu.Lock()
	defer d.Mu.Unlock()
	t := d.totals
	t.Workers, t.Late = len(d.workers), int(d.Counters.Late.Load())
	t.Down, t.Up, t.Numerics = d.Counters.Down.Load(), d.Counters.Up.Load(), slices.Clone(t.Numerics)
	return t
}

// handle gives a message to the slot that it came from.
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

// watch misses workers that say nothing any more. While there is no NATS server nobody can be heard.
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
	tries   = 3  // that a job may fail on workers before the run does
	maxLost = 20 // workers that may be missed with one job before it counts as one that kills them
)

// job is a job that is to be done.
type job struct {
	ctx    context.Context
	order  message.Instruction
	client int
	state  func() (message.ClientState, error)
	done   chan outcome // gets one for each time that a slot takes the job
}

// outcome is how a job ended.
type outcome struct {
	reply message.Reply
	next  *message.ClientState
	err   error
	fatal bool // another worker cannot do better
	lost  bool // with the worker
}

// Execute has an order done by some worker.
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
