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

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/natsserver"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
	"promptfed/federation/transport/workers"
)

// farm is a run with a queue, and its workers.
type farm struct {
	t    testing.TB
	e    *spec.Experiment
	dir  string
	nats *natsserver.Server
	conn *nats.Conn // of the run
	url  string
	log  *transporttest.Logs
	set  workers.Settings
	each engine.Settings                  // of every worker
	who  func(name string) certs.Identity // nil for keys that are made
	jobs atomic.Int64                     // begun by workers
	over sync.WaitGroup
	// around goes around every job on a worker; nil for nothing.
	around func(worker int, do workers.Executor) workers.Executor
}

func newFarm(t testing.TB, e *spec.Experiment) *farm {
	f := &farm{t: t, e: e, dir: t.TempDir(), log: &transporttest.Logs{}}
	f.set = workers.Settings{Queue: "toy", Config: []byte("name: toy\n"), Compatibility: compatibility(e),
		Log: f.log.Logger()}
	var err error
	f.nats, err = natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Workers: true, Run: "toy",
		Limit: 1 << 20, Log: f.log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	f.conn, f.url = f.nats.Conn(), f.nats.URL()
	t.Cleanup(func() {
		f.over.Wait()
		f.nats.Close()
		if t.Failed() {
			t.Log(f.log.String())
		}
	})
	return f
}

func compatibility(e *spec.Experiment) spec.Compatibility {
	return spec.Compatibility{Program: "1", Fingerprint: e.Fingerprint(), RunSpec: e.RunSpec(),
		Digests: map[string]string{"data": "abc"}}
}

// dial connects a worker.
func (f *farm) dial(ctx context.Context, id string) (*nats.Conn, error) {
	return exchange.Dial(ctx, f.url, "worker", f.log.Logger(), append(workers.ConnOptions("toy", id),
		nats.UserInfo(certs.WorkerUser, ""))...)
}

// as is a worker's place in the queue.
func (f *farm) as(id string) workers.Worker {
	w := workers.Worker{Queue: "toy", Worker: id, Program: "1", Log: f.log.Logger().With("id", id[:8])}
	if f.who != nil {
		w.Identity = f.who(certs.WorkerUser)
	}
	return w
}

// work is one worker's process, until the run is over.
func (f *farm) work(ctx context.Context, nc *nats.Conn, id string, worker, jobs int,
	change ...func(*workers.Info)) error {
	as := f.as(id)
	inv, err := as.FetchInvitation(ctx, nc)
	if err != nil {
		return err
	}
	w := client.NewWorker(f.e, f.each.Settings)
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
	id := subjects.NewID()
	nc, err := f.dial(ctx, id)
	if err != nil {
		f.t.Error(err)
		return nil
	}
	f.over.Go(func() {
		defer nc.Close()
		if err := f.work(ctx, nc, id, worker, jobs); err != nil && ctx.Err() == nil &&
			!errors.Is(err, workers.ErrRunOver) &&
			!errors.Is(err, nats.ErrConnectionClosed) {
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
	id, done := subjects.NewID(), make(chan error, 1)
	nc := f.dialed(ctx, id)
	go func() { done <- f.work(ctx, nc, id, 0, jobs) }()
	return done
}

// dialed is dial; the connection goes with the test.
func (f *farm) dialed(ctx context.Context, id string) *nats.Conn {
	f.t.Helper()
	nc, err := f.dial(ctx, id)
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
	c.Close()
	if err != nil {
		return "", "", totals, err
	}
	b, err := os.ReadFile(filepath.Join(set.Dir, record.PromptsFile))
	return string(b), transporttest.WithoutTimes(f.t, r.Records), totals, err
}
