package workers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
	"promptfed/federation/transport/workers"
)

// A worker may use the subjects of its own jobs and nothing else: those of no other worker, also of one with the same
// certificate, of no client, and not JetStream's.
func TestWorkerMayNotMore(t *testing.T) {
	f := newFarm(t, transporttest.FedPHA.Experiment(t))
	ctx := transporttest.TestContext(t)
	c, err := workers.Open(ctx, f.nats.Conn(), f.set)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mine, other := subjects.NewID(), subjects.NewID()
	hear := func(subject string) func(nc *nats.Conn) error {
		return func(nc *nats.Conn) error { _, err := nc.SubscribeSync(subject); return err }
	}
	say := func(subject string) func(nc *nats.Conn) error {
		return func(nc *nats.Conn) error { return nc.Publish(subject, []byte("x")) }
	}
	for what, do := range map[string]func(nc *nats.Conn) error{
		"hear everything":              hear(">"),
		"hear other workers' jobs":     hear("pf.toy.work.to.>"),
		"hear another worker's job":    hear("pf.toy.work.to." + other + ".0.order"),
		"hear results":                 hear("pf.toy.work.from.*.*.reply"),
		"hear a client's instructions": hear("pf.toy.to.1.order"),
		"hear the usual inboxes":       hear("_INBOX.>"),
		"give jobs":                    say("pf.toy.work.to." + mine + ".0.order"),
		"answer for another worker":    say("pf.toy.work.from." + other + ".0.reply"),
		"answer for a client":          say("pf.toy.from.1.reply"),
		"ask for the status":           say("pf.toy.status"),
		"use another queue":            say("pf.other.work.from." + mine + ".0.hello"),
		"ask JetStream":                say("$JS.API.INFO"),
		"delete a stream":              say("$JS.API.STREAM.DELETE.pf-toy-turns"),
		"store an object":              say("$O.pf-toy-work.C.x"),
	} {
		nc, err := f.dial(ctx, mine)
		if err != nil {
			t.Fatal(err)
		}
		if err := do(nc); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		nc.Flush()
		transporttest.Eventually(t, "a refusal to "+what, func() bool {
			return errors.Is(nc.LastError(), nats.ErrPermissionViolation)
		})
		nc.Close()
	}
	for _, name := range []string{"", "worker", "worker-1", "worker-" + strings.Repeat(">", 32), "client-0"} {
		nc, err := nats.Connect(f.url, nats.UserInfo(certs.WorkerUser, ""), nats.Name(name))
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("a connection of the name %q: %v", name, err)
		}
		if err == nil {
			nc.Close()
		}
	}
}
