package workers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/natsserver"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/workers"
	"promptfed/runtime/busytest"
)

// farm is a run with a queue, and its workers.
type farm struct {
	t    testing.TB
	e    *spec.Experiment
	dir  string
	nats *natsserver.Server
	conn *nats.Conn // of the run
	url  string
	log  *nettest.Logs
	set  workers.Settings
	each engine.Settings // of every worker
	jobs atomic.Int64    // begun by workers; a job of one that is silent for seconds is begun again by another
	kept int             // jobs in the stream of the last run
	over sync.WaitGroup
	// around goes around every job on a worker; nil for nothing.
	around func(worker int, do workers.Executor) workers.Executor
}

// newFarm returns a farm without workers, and a context that ends before its connections.
func newFarm(t testing.TB, e *spec.Experiment) (*farm, context.Context) {
	ctx, cancel := context.WithCancel(busytest.Context(t))
	f := &farm{t: t, e: e, dir: t.TempDir(), log: &nettest.Logs{}}
	f.set = workers.Settings{Queue: "toy", Config: []byte("name: toy\n"), Compatibility: compatibility(e),
		Log: f.log.Logger()}
	var err error
	f.nats, err = natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Log: f.log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	f.conn, f.url = f.nats.Conn(), f.nats.URL()
	t.Cleanup(func() {
		cancel()
		f.over.Wait()
		f.nats.Close()
		if t.Failed() {
			t.Log(f.log.String())
		}
	})
	return f, ctx
}

func compatibility(e *spec.Experiment) spec.Compatibility {
	return spec.Compatibility{Program: "1", Fingerprint: e.Fingerprint(), RunSpec: e.RunSpec(),
		Digests: map[string]string{"data": "abc"}}
}

// dial connects a worker or a run.
func (f *farm) dial(ctx context.Context) (*nats.Conn, error) {
	return workers.Connect(ctx, f.url, "test", true, f.log.Logger())
}

// as returns the settings of a worker.
func (f *farm) as() workers.Worker {
	return workers.Worker{Queue: "toy", Program: "1", Log: f.log.Logger()}
}

// work is one worker's process, until the run is over.
func (f *farm) work(ctx context.Context, nc *nats.Conn, worker, jobs int, change ...func(*workers.Info)) error {
	as := f.as()
	inv, err := as.FetchInvitation(ctx, nc)
	if err != nil {
		return err
	}
	w := client.NewWorker(f.e, f.each.Client)
	defer w.Close()
	job := func(ctx context.Context, client int, o message.Instruction, s message.ClientState) (message.Reply,
		*message.ClientState, error) {
		f.jobs.Add(1)
		return w.Execute(ctx, f.e.Clients[client], o, s)
	}
	if f.around != nil {
		job = f.around(worker, job)
	}
	info := workers.Info{Host: fmt.Sprint("host", worker), Jobs: jobs, Compatibility: compatibility(f.e)}
	for _, c := range change {
		c(&info)
	}
	return as.Run(ctx, nc, inv, info, job)
}

// Start starts a worker that ends with the run or the test.
func (f *farm) start(ctx context.Context, worker, jobs int) *nats.Conn {
	nc, err := f.dial(ctx)
	if err != nil {
		f.t.Error(err)
		return nil
	}
	f.over.Go(func() {
		defer nc.Close()
		if err := f.work(ctx, nc, worker, jobs); err != nil && ctx.Err() == nil &&
			!errors.Is(err, workers.ErrRunOver) && !errors.Is(err, nats.ErrConnectionClosed) {
			f.t.Errorf("worker %d: %v", worker, err)
		}
	})
	return nc
}

// same runs the experiment over the queue and compares what it learned with a run in one process.
func (f *farm) same(ctx context.Context, want, records string, change ...func(*engine.Settings)) workers.Totals {
	f.t.Helper()
	prompts, notes, totals, err := f.run(ctx, change...)
	if err != nil {
		f.t.Fatal(err)
	}
	if prompts != want || notes != records {
		f.t.Errorf("another result than in one process; %+v\n%s\n%s", totals, notes, records)
	}
	return totals
}

// process runs a worker as a process of its own and gives the error that it ends with; its connection goes with the
// test.
func (f *farm) process(ctx context.Context, jobs int) (ended <-chan error) {
	f.t.Helper()
	done := make(chan error, 1)
	nc := f.dialed(ctx)
	go func() { done <- f.work(ctx, nc, 0, jobs) }()
	return done
}

// dialed is dial; the connection goes with the test.
func (f *farm) dialed(ctx context.Context) *nats.Conn {
	f.t.Helper()
	nc, err := f.dial(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(nc.Close)
	return nc
}

// Run runs the experiment over the queue and gives what it learned.
func (f *farm) run(ctx context.Context, change ...func(*engine.Settings)) (prompts, records string,
	totals workers.Totals, err error) {
	f.t.Helper()
	c, err := workers.Open(ctx, f.conn, f.set)
	if err != nil {
		return "", "", totals, err
	}
	set := engine.Settings{Dir: filepath.Join(f.dir, "run"), Workers: 64, Executor: c}
	for _, f := range change {
		f(&set)
	}
	r, err := engine.Run(ctx, f.e, set)
	totals = c.Totals()
	js, e := jetstream.New(f.conn)
	if e == nil {
		var s jetstream.Stream
		if s, e = js.Stream(busytest.Context(f.t), "promptfed-toy"); e == nil {
			f.kept = int(s.CachedInfo().State.LastSeq)
		}
	}
	if e != nil && err == nil {
		f.t.Error(e)
	}
	c.Close()
	if err != nil {
		return "", "", totals, err
	}
	b, err := os.ReadFile(filepath.Join(set.Dir, record.PromptsFile))
	return string(b), nettest.WithoutTimes(f.t, r.Records), totals, err
}
