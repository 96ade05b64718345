package workers_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
	"promptfed/federation/transport/workers"
)

// A NATS server of somebody else's keeps the queue, and when it goes away in the middle of a round and comes back, run
// and workers go on, with tensors in messages and in pieces.
func TestDispatcherOverForeignServer(t *testing.T) {
	want, records := transporttest.OneProcess(t, transporttest.FedPHA.Experiment(t))
	for _, limit := range []int{0, 100} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			f := newFarm(t, transporttest.FedPHA.Experiment(t))
			f.set.Limit = limit
			ctx, cancel := context.WithCancel(transporttest.TestContext(t))
			defer cancel()
			n := f.elsewhere(ctx)
			defer func() { n.Shutdown() }()
			u, err := url.Parse(n.ClientURL())
			if err != nil {
				t.Fatal(err)
			}
			port, err := strconv.Atoi(u.Port())
			if err != nil {
				t.Fatal(err)
			}
			var restarted atomic.Bool
			f.around = func(_ int, do workers.Executor) workers.Executor {
				return func(ctx context.Context, client int, o message.Instruction,
					s message.ClientState) (message.Reply,
					*message.ClientState, error) {
					if o.Round == 1 && restarted.CompareAndSwap(false, true) {
						n.Shutdown()
						n.WaitForShutdown()
						n = transporttest.StartNATS(t, port)
					}
					return do(ctx, client, o, s)
				}
			}
			f.start(ctx, 0, 1)
			f.start(ctx, 1, 2)
			if totals := f.same(ctx, want, records); !restarted.Load() || totals.Failed > 0 {
				t.Errorf("%+v, the NATS server was restarted: %v", totals, restarted.Load())
			}
		})
	}
}

// elsewhere makes the run and its workers meet on a NATS server that knows nothing of promptfed.
func (f *farm) elsewhere(ctx context.Context) *server.Server {
	n := transporttest.StartNATS(f.t, server.RANDOM_PORT)
	f.url = n.ClientURL()
	var err error
	if f.conn, err = exchange.Dial(ctx, f.url, "run", f.log.Logger()); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(f.conn.Close)
	return n
}

// certify gives the run and its workers certificates.
func (f *farm) certify(ca *transporttest.Authority) {
	f.who, f.set.Identity = ca.Identity, ca.Identity("server")
}

// A run that is killed says nothing to its workers. They go on waiting, and take the next run of the queue for another;
// so they do with keys that both sides made, where the next run has another, and with certificates.
func TestDispatcherVanishes(t *testing.T) {
	for _, certified := range []bool{false, true} {
		t.Run(fmt.Sprint("certified=", certified), func(t *testing.T) {
			f := newFarm(t, transporttest.FedPHA.Experiment(t))
			ctx, cancel := context.WithCancel(transporttest.TestContext(t))
			defer cancel()
			n := f.elsewhere(ctx)
			defer n.Shutdown()
			if certified {
				f.certify(transporttest.NewAuthority(t))
			}
			if _, err := workers.Open(ctx, f.conn, f.set); err != nil {
				t.Fatal(err)
			}
			ended := f.process(ctx, 3)
			transporttest.Eventually(t, "joining", func() bool {
				return strings.Contains(f.log.String(),
					"a worker joined")
			})
			f.conn.Close() // as kill -9 does
			var err error
			if f.conn, err = exchange.Dial(ctx, f.url, "run", f.log.Logger()); err != nil {
				t.Fatal(err)
			}
			c, err := workers.Open(ctx, f.conn, f.set)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := <-ended; !errors.Is(err, workers.ErrRunOver) {
				t.Errorf("the worker says %v", err)
			}
		})
	}
}

// Who runs the NATS server can send whatever it likes in anybody's name, again and to others, and changes nothing that
// is learned; so it is for a worker with a certificate of another name.
func TestDispatcherOperator(t *testing.T) {
	want, records := transporttest.OneProcess(t, transporttest.FedPHA.Experiment(t))
	for _, certified := range []bool{false, true} {
		t.Run(fmt.Sprint("certified=", certified), func(t *testing.T) {
			f := newFarm(t, transporttest.FedPHA.Experiment(t))
			ctx, cancel := context.WithCancel(transporttest.TestContext(t))
			defer cancel()
			n := f.elsewhere(ctx)
			defer n.Shutdown()
			if certified {
				f.certify(transporttest.NewAuthority(t))
			}
			p := &transporttest.Operator{Run: subjects.NewID(), Total: 3, Old: map[string][]*nats.Msg{}}
			var err error
			if p.Nc, err = nats.Connect(f.url); err != nil {
				t.Fatal(err)
			}
			defer p.Nc.Close()
			for _, subject := range []string{"pf.toy.work.to.*.*.order", "pf.toy.work.from.*.*.reply",
				"pf.toy.work.from.*.*.beat", "pf.toy.work.from.*.*.join"} {
				if _, err := p.Nc.Subscribe(subject, p.Hear); err != nil {
					t.Fatal(err)
				}
			}
			p.Nc.Flush()
			f.start(ctx, 0, 3)
			totals := f.same(ctx, want, records)
			p.Mu.Lock()
			sent := p.Sent
			p.Mu.Unlock()
			if sent < 100 || totals.Failed > 0 || !strings.Contains(f.log.String(), "an instruction is dropped") {
				t.Errorf("%d messages sent, %+v", sent, totals)
			}
			if !certified {
				return
			}
			c, err := workers.Open(ctx, f.conn, f.set)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			worker := f.who
			for say, who := range map[string]certs.Identity{
				"belongs to \"client-0\", not to worker": worker("client-0"),
				"worker sent no certificate":             {},
			} {
				f.who = func(string) certs.Identity { return who }
				id := subjects.NewID()
				err := f.work(ctx, f.dialed(ctx, id), id, 1, 1)
				if err == nil || !strings.Contains(err.Error(), say) {
					t.Errorf("%q: %v", say, err)
				}
			}
		})
	}
}
