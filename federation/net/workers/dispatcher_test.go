package workers_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/workers"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// The run folder has the bytes of a run in one process, for any number of workers, also with large tensors in the
// object store, with statistics and with an evaluation set.
func TestDispatcherGivesTheSame(t *testing.T) {
	for _, s := range []nettest.Stack{
		nettest.Method("promptfl", nil, map[string]any{"tokens": 2}),
		nettest.FedPHA,
		nettest.Method("promptfl", []string{"scaffold", "ggtpc"}, nil),
		nettest.Method("promptfl", []string{"compress"}, map[string]any{"tokens": 2, "kind": "sign"}),
	} {
		want, records := nettest.OneProcess(t, nettest.WithEvaluationSet(s.Experiment(t)))
		for _, c := range []struct{ workers, jobs, limit int }{{1, 1, 0}, {3, 2, 0}, {2, 1, 100}} {
			t.Run(fmt.Sprintf("%s-%d-workers-limit-%d", s.Method, c.workers, c.limit), func(t *testing.T) {
				f, ctx := newFarm(t, nettest.WithEvaluationSet(s.Experiment(t)))
				f.set.Limit = c.limit
				for k := range c.workers {
					f.start(ctx, k, c.jobs)
				}
				totals := f.same(ctx, want, records)
				if totals.Jobs == 0 || totals.Failed > 0 || totals.Jobs != f.kept ||
					int64(totals.Jobs) > f.jobs.Load() {
					t.Errorf("%+v, %d jobs kept, %d begun", totals, f.kept, f.jobs.Load())
				}
			})
		}
	}
}

// The jobs of a worker that is killed are executed by another worker, which joined later.
func TestDispatcherLosesWorkers(t *testing.T) {
	want, records := nettest.OneProcess(t, nettest.FedPHA.Experiment(t))
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	inside, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.around = func(worker int, do workers.Executor) workers.Executor {
		return func(ctx context.Context, client int, o message.Instruction, s message.ClientState) (message.Reply,
			*message.ClientState, error) {
			if worker == 0 && o.Round == 1 {
				f.jobs.Add(1)
				once.Do(func() { close(inside) })
				<-release
			}
			return do(ctx, client, o, s)
		}
	}
	first := f.start(ctx, 0, 2)
	go func() {
		<-inside
		first.Close() // as kill -9 does
		close(release)
		f.start(ctx, 1, 2)
	}()
	totals := f.same(ctx, want, records)
	if totals.Workers != 2 || int64(totals.Jobs) >= f.jobs.Load() || totals.Lost < 1 {
		t.Errorf("%+v, %d jobs begun", totals, f.jobs.Load())
	}
}

// A result that comes twice counts once.
func TestDispatcherDuplicates(t *testing.T) {
	want, records := nettest.OneProcess(t, nettest.FedPHA.Experiment(t))
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	var copies atomic.Int64
	copied := make(chan struct{})
	sub, err := f.conn.Subscribe("promptfed.toy.result", func(m *nats.Msg) {
		if m.Header.Get("copied") == "" {
			again := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: maps.Clone(m.Header)}
			again.Header.Set("copied", "1")
			f.conn.PublishMsg(again)
			if f.conn.Flush(); copies.Add(1) == 1 {
				close(copied)
			}
		}
	})
	goldentest.NoError(t, err)
	defer sub.Unsubscribe()
	f.around = func(_ int, do workers.Executor) workers.Executor {
		return func(ctx context.Context, client int, o message.Instruction, s message.ClientState) (message.Reply,
			*message.ClientState, error) {
			if o.Round > 0 { // the first copy comes before these results
				<-copied
			}
			return do(ctx, client, o, s)
		}
	}
	f.start(ctx, 0, 2)
	totals := f.same(ctx, want, records)
	if totals.Late == 0 || totals.Jobs != f.kept {
		t.Errorf("%+v, %d jobs kept", totals, f.kept)
	}
	busytest.Until(t, "a copy of every result", func() bool { return int(copies.Load()) >= totals.Jobs })
}

// A run that was stopped continues with other workers. A worker of the stopped run reports that the run is over.
func TestDispatcherResumes(t *testing.T) {
	want, records := nettest.OneProcess(t, nettest.FedPHA.Experiment(t))
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	ended := f.process(ctx, 2)
	stopped, stop := context.WithCancel(ctx)
	_, _, _, err := f.run(stopped, func(s *engine.Settings) {
		s.OnRound = func(record.Record) { stop() }
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	f.start(ctx, 1, 1)
	f.same(ctx, want, records, func(s *engine.Settings) { s.Resume = true })
	c, err := workers.Open(ctx, f.conn, f.set)
	goldentest.NoError(t, err)
	defer c.Close()
	if err := <-ended; !errors.Is(err, workers.ErrRunOver) {
		t.Errorf("the first run's worker: %v", err)
	}
}

// A worker that differs from the run is refused before it gets a job. A second run cannot use the queue of one that
// answers, or whose subjects another stream has.
func TestDispatcherRefuses(t *testing.T) {
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	c, err := workers.Open(ctx, f.conn, f.set)
	goldentest.NoError(t, err)
	defer c.Close()
	nc := f.dialed(ctx)
	for say, change := range map[string]func(*workers.Info){
		"data: the run has": func(c *workers.Info) {
			c.Compatibility.Digests = map[string]string{"data": "xyz"}
		},
		"seed: the server has":     func(c *workers.Info) { c.Compatibility.RunSpec.Seed++ },
		"fingerprint: the run has": func(c *workers.Info) { c.Compatibility.Fingerprint = "0" },
		"0 jobs at a time":         func(c *workers.Info) { c.Jobs = 0 },
	} {
		goldentest.WantError(t, f.work(ctx, nc, 0, 1, change), say)
		if !strings.Contains(f.log.String(), say) {
			t.Errorf("the run does not log %q", say)
		}
	}
	as := f.as()
	as.Program = "2"
	_, err = as.FetchInvitation(ctx, nc)
	goldentest.WantError(t, err, "program: the run has version 1")
	c.Close()
	as.Idle = 50 * time.Millisecond
	if _, err := as.FetchInvitation(ctx, nc); !errors.Is(err, workers.ErrIdle) {
		t.Errorf("%v", err)
	}
	if n := c.Totals(); n.Workers != 0 || f.jobs.Load() != 0 {
		t.Errorf("%+v", n)
	}
	busytest.Until(t, "a refused second run", func() bool {
		first, err := workers.Open(ctx, f.conn, f.set)
		goldentest.NoError(t, err)
		defer first.Close()
		second, err := workers.Open(ctx, f.conn, f.set)
		if err == nil { // the first is given 200 ms to answer, too few on a busy machine
			second.Close()
			return false
		}
		goldentest.WantError(t, err, "another run uses the queue")
		return true
	})
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "other", Subjects: []string{"promptfed.toy.job"}})
	}
	goldentest.NoError(t, err)
	_, err = workers.Open(ctx, f.conn, f.set)
	goldentest.WantError(t, err, `the queue "toy" cannot be made`)
}

// failing lets the next jobs of client 2 fail, so many.
func (f *farm) failing(jobs int64) (left *atomic.Int64) {
	left = &atomic.Int64{}
	left.Store(jobs)
	f.around = func(_ int, do workers.Executor) workers.Executor {
		return func(ctx context.Context, client int, o message.Instruction, s message.ClientState) (message.Reply,
			*message.ClientState, error) {
			if client == 2 && left.Add(-1) >= 0 {
				return message.Reply{}, nil, errors.New("no memory")
			}
			return do(ctx, client, o, s)
		}
	}
	return left
}

// A job that fails is tried again. A job that fails every time ends the run with the reason.
func TestDispatcherFailures(t *testing.T) {
	want, _ := nettest.OneProcess(t, nettest.FedPHA.Experiment(t))
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	left := f.failing(2)
	f.start(ctx, 0, 1)
	prompts, _, totals, err := f.run(ctx)
	if err != nil || prompts != want || totals.Failed < 1 || totals.Failed > 2 { // 1 if both are of one delivered again
		t.Errorf("%v, %+v", err, totals)
	}
	left.Store(1 << 30)
	f.start(ctx, 1, 1)
	_, _, _, err = f.run(ctx, func(s *engine.Settings) { s.Dir = t.TempDir() })
	goldentest.WantError(t, err, "worker host1: no memory (tried 3 times)")
}

// When a job that failed is tried again, the failure of the first attempt may arrive again: it does not count as a
// failure of the second.
func TestDispatcherFailuresAgain(t *testing.T) {
	want, _ := nettest.OneProcess(t, nettest.FedPHA.Experiment(t))
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	var old *nats.Msg // of one worker that does one job at a time, so that one subscription hears all in order
	var again atomic.Int64
	sub, err := f.conn.Subscribe("promptfed.toy.*", func(m *nats.Msg) {
		switch {
		case m.Header.Get("again") != "":
		case strings.HasSuffix(m.Subject, ".result"):
			old = m
		case strings.HasSuffix(m.Subject, ".job") && old != nil:
			again.Add(1)
			copied := &nats.Msg{Subject: old.Subject, Data: old.Data, Header: maps.Clone(old.Header)}
			copied.Header.Set("again", "1")
			f.conn.PublishMsg(copied)
		}
	})
	goldentest.NoError(t, err)
	defer sub.Unsubscribe()
	f.failing(1)
	f.start(ctx, 0, 1)
	prompts, _, totals, err := f.run(ctx)
	if err != nil || prompts != want || totals.Failed != 1 || again.Load() == 0 {
		t.Errorf("%v, %+v, %d replies sent again", err, totals, again.Load())
	}
}

// A job during which every worker is lost ends the run with an error that names the job.
func TestDispatcherKiller(t *testing.T) {
	f, ctx := newFarm(t, nettest.FedPHA.Experiment(t))
	var lost atomic.Int64
	go func() { // workers that stop politely give the job back at once
		for k := 0; ctx.Err() == nil; k++ {
			own, stop := context.WithCancel(ctx)
			f.around = func(_ int, do workers.Executor) workers.Executor {
				return func(ctx context.Context, client int, o message.Instruction,
					s message.ClientState) (message.Reply, *message.ClientState, error) {
					if client == 2 {
						lost.Add(1)
						stop()
					}
					return do(ctx, client, o, s)
				}
			}
			nc, err := f.dial(own)
			if err == nil {
				f.work(own, nc, k, 1)
				nc.Close()
			}
			stop()
		}
	}()
	_, _, _, err := f.run(ctx)
	if err == nil || !strings.Contains(err.Error(),
		"round 1, client 2: 20 workers started this job and none finished it") || lost.Load() == 0 || lost.Load() > 20 {
		t.Errorf("%d workers were lost: %v", lost.Load(), err)
	}
}

// The clients' measurements of the terms of their losses are those of one process.
func TestDispatcherGivesTerms(t *testing.T) {
	s := nettest.Method("fedpha", []string{"scaffold"}, nettest.FedPHA.Options)
	r := enginetest.Run(t, s.Experiment(t), engine.Settings{Client: client.Settings{Terms: true}})
	want := nettest.WithoutTimes(t, r.Records)
	f, ctx := newFarm(t, s.Experiment(t))
	f.each.Client.Terms = true
	f.start(ctx, 0, 2)
	if _, got, _, err := f.run(ctx, func(set *engine.Settings) { set.Client.Terms = true }); err != nil || got != want {
		t.Errorf("on a worker, %v\n%s\n%s", err, got, want)
	}
}
