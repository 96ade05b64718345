package workers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"promptfed/federation/net/wait"

	"github.com/nats-io/nats.go/jetstream"
)

// runKey is the key of a run's identity in the metadata of its streams.
const runKey = "promptfed-run"

// createStreams makes the run's stream of jobs with its consumer, and its object store, in place of those of an earlier
// run. They have three replicas where the server is a cluster. Jobs are small and are kept in memory; objects are large
// and are kept in files.
func (d *Dispatcher) createStreams(ctx context.Context) error {
	if err := d.deleteStreams(ctx); err != nil {
		return fmt.Errorf("the queue %q of an earlier run cannot be removed: %w", d.queue, err)
	}

	js, replicas := d.tensors.js, []int{3, 1, 1, 1}
	err := wait.Retry(ctx, removal, func() (again bool, err error) {
		if err = d.createWith(ctx, replicas[0]); err == nil {
			return false, nil
		}
		if e := d.deleteStreams(ctx); e != nil {
			return false, e
		}
		replicas = replicas[1:]
		return len(replicas) > 0, err
	})

	if err == nil {
		_, err = js.CreateConsumer(ctx, d.queue.stream(), jetstream.ConsumerConfig{Durable: d.run,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: presenceTimeout, MaxDeliver: -1, MaxAckPending: -1,
			MaxWaiting: maxSlots})
	}

	if err != nil {
		return fmt.Errorf("the queue %q cannot be made: %w", d.queue, err)
	}

	d.mu.Lock()
	d.opened++
	d.mu.Unlock()
	return nil
}

// removal is the time in which a server may still remove the files of an earlier run's streams, under the same names:
// it refuses to make them until then.
const removal = 50 * time.Millisecond

// createWith makes the streams with so many replicas.
func (d *Dispatcher) createWith(ctx context.Context, replicas int) error {
	js, owner := d.tensors.js, map[string]string{runKey: d.run}
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: d.queue.stream(),
		Subjects: []string{d.queue.subject(jobSubject)}, Retention: jetstream.WorkQueuePolicy,
		Storage: jetstream.MemoryStorage, Replicas: replicas, Metadata: owner})
	if err == nil {
		_, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: d.queue.objects(),
			Storage: jetstream.FileStorage, Replicas: replicas, Metadata: owner})
	}
	return err
}

// deleteStreams removes the streams of the queue, of any run.
func (d *Dispatcher) deleteStreams(ctx context.Context) error {
	for _, name := range []string{d.queue.stream(), d.queue.objectStream()} {
		if err := d.tensors.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}

// checkStreams makes lost streams again, as after the restart of a server that kept them in memory, and has all
// unfinished jobs published again, also if the stream remains without them. If another run has taken the queue, this
// run ends.
func (d *Dispatcher) checkStreams(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	published := d.published()
	for _, name := range []string{d.queue.objectStream(), d.queue.stream()} {
		stream, err := d.tensors.js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return d.restore(ctx)
		case err != nil:
			return err
		case stream.CachedInfo().Config.Metadata[runKey] != d.run:
			d.fail(d.taken())
		case name == d.queue.stream():
			still := d.published() // jobs without a result, which the stream must have
			maps.DeleteFunc(still, func(id string, _ bool) bool { return !published[id] })
			if stream.CachedInfo().State.Msgs < uint64(len(still)) {
				return d.restore(ctx)
			}
		}
	}

	return nil
}

// restore makes the streams again and has all unfinished jobs published again.
func (d *Dispatcher) restore(ctx context.Context) error {
	d.set.Log.Warn("the NATS server lost the queue; unfinished jobs are published again")
	err := d.createStreams(ctx)
	if err == nil {
		d.toAll(outcome{again: true})
	}
	return err
}

// published returns the identities of the published jobs without a result.
func (d *Dispatcher) published() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]bool{}
	for id, a := range d.pending {
		if a.published {
			out[id] = true
		}
	}

	return out
}

// toAll tells all unfinished jobs what happened. Their results do not count any more.
func (d *Dispatcher) toAll(what outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.pending {
		a.ended <- what
	}
	clear(d.pending)
}
