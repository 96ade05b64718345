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

	"promptfed/federation/engine"
)

// ClusterSettings say what a run tells its workers.
type ClusterSettings struct {
	Queue   string // its name, in subjects; one run at a time has it
	Config  []byte // of the run, as workers open it
	Footing engine.Footing
	Limit   int // bytes of tensors that travel in a message; 0 for DefaultLimit
	Largest int // bytes of tensors that are taken from a worker at most; 0 for DefaultLargest
	Log     *slog.Logger
}

// Cluster is an engine.Answerer: it spreads the turns of simulated clients over worker machines. Turns lie in a work
// queue, from which workers pull them; one that no worker has acknowledged, or said to be at work on, is delivered
// again. A turn carries all that it needs, so that any worker can do it, and whoever does gives the same result, which
// counts once.
type Cluster struct {
	queue
	set   ClusterSettings
	run   string // identity
	js    jetstream.JetStream
	store jetstream.ObjectStore
	stops []func()

	mu      sync.Mutex
	waiting map[string]*waiting // by identity of the turn
	workers map[string]int      // turns at a time, by instance
	totals  WorkTotals
}

// waiting is a turn that is to be done.
type waiting struct {
	order  engine.Order
	try    string
	done   chan outcome // gets one
	failed chan error   // of a try
}

// outcome is how a turn ended.
type outcome struct {
	reply engine.Reply
	next  *engine.State
}

// WorkTotals are counted since the cluster was opened.
type WorkTotals struct {
	Turns   int   // that counted
	Late    int   // results that came again, dropped
	Failed  int   // tries
	Workers int   // that took part
	Down    int64 // bytes to workers, with headers
	Up      int64 // bytes from workers that counted, with headers
}

// MaxTurns is how many turns of a run are worth to be in a queue at a time: more than the machines that anybody has can
// do.
const MaxTurns = 1024

// OpenCluster makes the queue of a run; what an older run left in it is removed.
func OpenCluster(ctx context.Context, nc *nats.Conn, set ClusterSettings) (*Cluster, error) {
	if err := CheckName(set.Queue); err != nil {
		return nil, err
	}
	if most := int(nc.MaxPayload()) - maxFrame; set.Limit <= 0 || set.Limit > most {
		set.Limit = min(DefaultLimit, most)
	}
	if set.Largest <= 0 {
		set.Largest = DefaultLargest
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	c := &Cluster{queue: queue{set.Queue}, set: set, run: NewID(), js: js, waiting: map[string]*waiting{},
		workers: map[string]int{}}
	if _, err := nc.RequestWithContext(short(ctx), c.subject(helloSubject), nil); err == nil {
		return nil, fmt.Errorf("another run has the queue %q on this NATS server; wait for it, or give --queue "+
			"another name", set.Queue)
	}
	if err := c.remove(ctx); err != nil {
		return nil, fmt.Errorf("cannot remove an older queue %q: %w", set.Queue, err)
	}
	if err := c.streams(ctx); err != nil {
		return nil, fmt.Errorf("NATS JetStream: queue %s: %w", set.Queue, err)
	}
	return c, c.listen(nc)
}

// streams makes what the queue needs.
func (c *Cluster) streams(ctx context.Context) error {
	size := int32(c.set.Limit + maxFrame)
	for _, s := range []jetstream.StreamConfig{
		{Name: c.turns(), Subjects: []string{c.subject(turnSubject)}, Retention: jetstream.WorkQueuePolicy,
			Duplicates: window, MaxMsgSize: size,
			Description: "turns of simulated clients of promptfed"},
		{Name: c.results(), Subjects: []string{c.subject(resultSubject)}, Retention: jetstream.WorkQueuePolicy,
			Duplicates: window, MaxMsgSize: size,
			Description: "results of promptfed's workers"},
	} {
		if err := whileRemoved(ctx, func() error {
			_, err := c.js.CreateStream(ctx, s)
			return err
		}); err != nil {
			return err
		}
	}
	err := whileRemoved(ctx, func() (err error) {
		c.store, err = c.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: c.bucket(), TTL: 24 * time.Hour})
		return err
	})
	if err != nil {
		return err
	}
	_, err = c.js.CreateConsumer(ctx, c.turns(), jetstream.ConsumerConfig{Durable: c.consumer(c.run),
		AckPolicy: jetstream.AckExplicitPolicy,
		AckWait:   ackWait, MaxDeliver: -1, MaxAckPending: maxClient})
	if err != nil {
		return err
	}
	results, err := c.js.CreateConsumer(ctx, c.results(), jetstream.ConsumerConfig{Durable: "run",
		AckPolicy: jetstream.AckExplicitPolicy,
		AckWait:   time.Minute, MaxDeliver: -1})
	if err != nil {
		return err
	}
	slots := make(chan struct{}, 4)
	running, err := results.Consume(func(m jetstream.Msg) {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			if err := c.take(m); err != nil {
				c.set.Log.Warn("a result comes again", "error", err)
				m.NakWithDelay(time.Second)
				return
			}
			m.Ack()
		}()
	}, jetstream.PullMaxMessages(64), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		c.set.Log.Debug("waiting for results", "error", err)
	}))
	if err == nil {
		c.stops = append(c.stops, running.Stop)
	}
	return err
}

// Close ends the queue: workers give up what they are at and wait for the next run.
func (c *Cluster) Close() error {
	for _, stop := range c.stops {
		stop()
	}
	c.stops = nil
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.remove(ctx)
}

func (c *Cluster) remove(ctx context.Context) error {
	return errors.Join(absent(c.js.DeleteStream(ctx, c.turns())), absent(c.js.DeleteStream(ctx, c.results())),
		absent(c.js.DeleteObjectStore(ctx, c.bucket())))
}

// storeFailed is JetStream's code for a stream whose files it cannot make.
const storeFailed = 10049

// whileRemoved does something again for a while where JetStream cannot make the files of a stream: it removes those of
// a stream of the same name after it has told that the stream is deleted.
func whileRemoved(ctx context.Context, create func() error) error {
	for range 20 {
		err := create()
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != storeFailed {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return create()
}

// absent forgives the deletion of what is not there.
func absent(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	return err
}

// Totals are the cluster's so far.
func (c *Cluster) Totals() WorkTotals {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.totals
	t.Workers = len(c.workers)
	return t
}

// listen answers workers.
func (c *Cluster) listen(nc *nats.Conn) error {
	on := func(subject string, do func(b []byte) any) error {
		s, err := nc.Subscribe(subject, func(m *nats.Msg) {
			b, err := json.Marshal(do(m.Data))
			if err == nil && m.Reply != "" {
				err = m.Respond(b)
			}
			if err != nil {
				c.set.Log.Error("cannot answer", "subject", m.Subject, "error", err)
			}
		})
		if err == nil {
			c.stops = append(c.stops, func() { s.Unsubscribe() })
		}
		return err
	}
	return errors.Join(on(c.subject(helloSubject), c.greet), on(c.subject(joinSubject), c.join), nc.Flush())
}

// greet tells a worker about the run.
func (c *Cluster) greet(b []byte) any {
	var g greeting
	if err := strict(b, &g); err != nil {
		return verdict{Reason: "that is no greeting"}
	}
	if g.Version != Version {
		return verdict{Reason: fmt.Sprintf("the run speaks version %d of the messages, the worker %d; use the same "+
			"release on both sides", Version, g.Version)}
	}
	if f := (engine.Footing{Program: c.set.Footing.Program}); g.Program != f.Program {
		reason := plain(f.Differs(engine.Footing{Program: g.Program}).Error())
		c.set.Log.Warn("a worker is refused", "reason", reason)
		return verdict{Reason: reason}
	}
	return offer{Run: c.run, Limit: c.set.Limit, Config: c.set.Config}
}

// join lets a worker take part, or says why not.
func (c *Cluster) join(b []byte) any {
	var w WorkCard
	err := strict(b, &w)
	if err == nil && (!hash.MatchString(w.Instance) || !word.MatchString(w.Host) || w.Jobs < 1 || w.Jobs > 1<<12) {
		err = fmt.Errorf("%d turns at a time, host %.100q or instance %.40q are none", w.Jobs, w.Host, w.Instance)
	}
	if err == nil {
		err = c.set.Footing.Differs(w.Footing)
	}
	if err != nil {
		v := verdict{Reason: plain(err.Error())}
		c.set.Log.Warn("a worker is refused", "host", plain(w.Host), "reason", v.Reason)
		return v
	}
	if here, there := c.set.Footing.Platform, w.Footing.Platform; here != there {
		c.set.Log.Warn("the worker's machine is of another kind; its results may differ in their last digits", "host",
			w.Host, "platform", plain(there), "here", here)
	}
	c.mu.Lock()
	c.workers[w.Instance] = w.Jobs
	c.mu.Unlock()
	c.set.Log.Info("a worker takes part", "host", w.Host, "jobs", w.Jobs)
	return verdict{OK: true}
}
