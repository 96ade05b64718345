package transport_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/transport"
)

// A worker can pull turns and store results, and nothing else: it hears no other worker and gives no turns.
func TestWorkerMayNotMore(t *testing.T) {
	f := newFarm(t, fedpha.toy(t))
	ctx := within(t, time.Minute)
	c, err := transport.OpenCluster(ctx, f.nats.Conn(), f.set)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for what, do := range map[string]func(nc *nats.Conn) error{
		"hear results":      func(nc *nats.Conn) error { _, err := nc.SubscribeSync("pf.toy.work.result"); return err },
		"hear everything":   func(nc *nats.Conn) error { _, err := nc.SubscribeSync(">"); return err },
		"give turns":        func(nc *nats.Conn) error { return nc.Publish("pf.toy.work.turn", []byte("x")) },
		"delete the stream": func(nc *nats.Conn) error { return nc.Publish("$JS.API.STREAM.DELETE.pf-toy-turns", nil) },
		"answer for a client": func(nc *nats.Conn) error {
			return nc.Publish("pf.toy.from.1.reply", []byte("x"))
		},
	} {
		nc, err := f.dial(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := do(nc); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		nc.Flush()
		eventually(t, "a refusal to "+what, func() bool {
			return errors.Is(nc.LastError(),
				nats.ErrPermissionViolation)
		})
		nc.Close()
	}
}
