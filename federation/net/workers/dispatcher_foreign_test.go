package workers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/natsserver"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/wait"
	"promptfed/federation/net/workers"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// foreign starts a NATS server at an address that is no part of the run.
func foreign(t testing.TB, address string) *natsserver.Server {
	t.Helper()
	n, err := natsserver.Start(natsserver.Options{Listen: address, Log: slog.New(slog.DiscardHandler)})
	goldentest.NoError(t, err)
	return n
}

// elsewhere moves the run and its workers to such a server.
func (f *farm) elsewhere(ctx context.Context) *natsserver.Server {
	f.t.Helper()
	n := foreign(f.t, busytest.Address(f.t, "127.0.0.1"))
	f.url = n.URL()
	f.conn = f.dialed(ctx)
	return n
}

// A run and its workers continue when the NATS server stops in the middle of a round, and starts again without all that
// it had.
func TestDispatcherOverForeignServer(t *testing.T) {
	want, records := nettest.OneProcess(t, nettest.FedPHA.Experiment(t))
	for _, limit := range []int{0, 100} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
			f.set.Limit = limit
			n := f.elsewhere(ctx)
			defer func() { n.Close() }()
			var restarted atomic.Bool
			f.around = func(_ int, do workers.Executor) workers.Executor {
				return func(ctx context.Context, client int, o message.Instruction,
					s message.ClientState) (message.Reply, *message.ClientState, error) {
					if o.Round == 1 && restarted.CompareAndSwap(false, true) {
						n.Close()
						n = foreign(t, strings.TrimPrefix(n.URL(), "nats://"))
					}
					return do(ctx, client, o, s)
				}
			}
			f.start(ctx, 0, 1)
			f.start(ctx, 1, 2)
			totals := f.same(ctx, want, records)
			if !restarted.Load() || totals.Failed > 0 || !strings.Contains(f.log.String(), "lost the queue") {
				t.Errorf("%+v, the NATS server was restarted: %v", totals, restarted.Load())
			}
		})
	}
}

// A run that is killed does not report its end. Its workers wait, and learn from the next run of the queue that it is
// another one. That run removes what the killed one left.
func TestDispatcherVanishes(t *testing.T) {
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	n := f.elsewhere(ctx)
	defer n.Close()
	if _, err := workers.Open(ctx, f.conn, f.set); err != nil {
		t.Fatal(err)
	}
	ended := f.process(ctx, 3)
	busytest.Until(t, "joining", func() bool { return strings.Contains(f.log.String(), "a worker joined") })
	js, err := jetstream.New(f.dialed(ctx))
	goldentest.NoError(t, err)
	store, err := js.ObjectStore(ctx, "promptfed-toy")
	if err == nil {
		_, err = store.PutString(ctx, "x", "of the killed run")
	}
	goldentest.NoError(t, err)
	f.conn.Close() // as kill -9 does
	f.conn = f.dialed(ctx)
	c, err := workers.Open(ctx, f.conn, f.set)
	goldentest.NoError(t, err)
	if _, err := store.GetString(ctx, "x"); !errors.Is(err, jetstream.ErrObjectNotFound) {
		t.Errorf("an object of the killed run: %v", err)
	}
	if err := <-ended; !errors.Is(err, workers.ErrRunOver) {
		t.Errorf("the worker says %v", err)
	}
	busytest.Until(t, "a server without streams", func() bool {
		c.Close() // gives up after two seconds
		list := js.StreamNames(ctx)
		left := 0
		for range list.Name() {
			left++
		}
		return left == 0 && list.Err() == nil
	})
}

// A run that was cut off, while another run took its queue, ends.
func TestDispatcherReplaced(t *testing.T) {
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	n := f.elsewhere(ctx)
	defer n.Close()
	js, err := jetstream.New(f.conn)
	goldentest.NoError(t, err)
	go wait.Retry(ctx, 10*time.Millisecond, func() (bool, error) { // until the run has a stream
		s, err := js.Stream(ctx, "promptfed-toy")
		if err == nil {
			set := s.CachedInfo().Config
			set.Metadata = map[string]string{"promptfed-run": "another"}
			_, err = js.UpdateStream(ctx, set)
		}
		return err != nil, err
	})
	_, _, _, err = f.run(ctx)
	goldentest.WantError(t, err, `another run uses the queue "toy"`)
}

// The tensors that all clients of an instruction get are stored once for all its jobs, and read once by each worker.
func TestDispatcherStoresOnce(t *testing.T) {
	want, records := nettest.OneProcess(t, nettest.FedPHA.Experiment(t))
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	f.set.Limit = 300 // less than these tensors have, more than states and results have
	count := func(subject, part string) *atomic.Int64 {
		var n atomic.Int64
		s, err := f.conn.Subscribe(subject, func(m *nats.Msg) {
			if strings.Contains(string(m.Data), part) {
				n.Add(1)
			}
		})
		goldentest.NoError(t, err)
		t.Cleanup(func() { s.Unsubscribe() })
		return &n
	}
	writes := count("$O.promptfed-toy.M.>", `"chunks":1`)
	reads := count("$JS.API.CONSUMER.CREATE.OBJ_promptfed-toy.>", "$O.promptfed-toy.C.")
	f.start(ctx, 0, 1)
	f.start(ctx, 1, 1)
	totals := f.same(ctx, want, records)
	// writes and reads are heard later than the results
	busytest.Until(t, "two reads or fewer for each of three writes or more", func() bool {
		return writes.Load() >= 3 && reads.Load() <= 2*writes.Load()
	})
	const instructions = 6 // three rounds of training and tests
	if n := writes.Load(); n > instructions || totals.Jobs <= 2*instructions {
		t.Errorf("%d objects were written and %d read for %d jobs", n, reads.Load(), totals.Jobs)
	}
}
