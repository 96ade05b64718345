package transport_test

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"promptfed/federation/engine"
	"promptfed/federation/transport"
)

// A NATS server of somebody else's keeps the queue, and when it goes away in the middle of a round and comes back, run
// and workers go on, with tensors in messages and in objects.
func TestDispatcherOverForeignServer(t *testing.T) {
	want, records := alone(t, fedpha.toy(t))
	for _, limit := range []int{0, 100} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			f := newFarm(t, fedpha.toy(t))
			f.set.Limit = limit
			dir := t.TempDir()
			n := foreign(t, dir, server.RANDOM_PORT)
			defer func() { n.Shutdown() }()
			u, err := url.Parse(n.ClientURL())
			if err != nil {
				t.Fatal(err)
			}
			port, err := strconv.Atoi(u.Port())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(within(t, time.Minute))
			defer cancel()
			f.url = n.ClientURL()
			if f.conn, err = transport.Dial(ctx, f.url, "run", f.log.logger()); err != nil {
				t.Fatal(err)
			}
			defer f.conn.Close()
			var restarted atomic.Bool
			f.around = func(_ int, do transport.Job) transport.Job {
				return func(ctx context.Context, client int, o engine.Order, s engine.State) (engine.Reply,
					*engine.State, error) {
					if o.Round == 1 && restarted.CompareAndSwap(false, true) {
						n.Shutdown()
						n.WaitForShutdown()
						n = foreign(t, dir, port)
					}
					return do(ctx, client, o, s)
				}
			}
			f.start(ctx, 0, 1)
			f.start(ctx, 1, 2)
			prompts, notes, totals, err := f.run(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if prompts != want || notes != records || !restarted.Load() || totals.Failed > 0 {
				t.Errorf("another result than in one process; %+v", totals)
			}
		})
	}
}
