package transport_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
)

// Once most clients agreed, a client is refused with the reason when it would train something else, or in the name of
// another that is there.
func TestRefusedToJoin(t *testing.T) {
	s := newSite(t, transporttest.Method("promptfl", nil, nil).Experiment(t))
	ctx, cancel := context.WithCancel(transporttest.TestContext(t))
	defer cancel()
	s.wait = 2
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	joined := make(chan error, 2)
	for k := range 2 {
		go func() { joined <- s.join(ctx, k) }()
	}
	transporttest.Eventually(t, "joining", func() bool {
		h := s.hub.Load()
		return h != nil && h.Participants()[0].Joined && h.Participants()[1].Joined
	})
	for say, change := range map[string]func(*protocol.JoinRequest, *transport.LocalExecutor){
		"options: the server has": func(c *protocol.JoinRequest,
			_ *transport.LocalExecutor) {
			c.RunSpec.Options = "{}"
		},
		"classes: the server has": func(c *protocol.JoinRequest,
			_ *transport.LocalExecutor) {
			c.RunSpec.Classes = c.RunSpec.Classes[1:]
		},
		"it cannot be averaged": func(c *protocol.JoinRequest,
			_ *transport.LocalExecutor) {
			c.Participant.Task.Width++
		},
		"other weights": func(c *protocol.JoinRequest,
			_ *transport.LocalExecutor) {
			c.Backbone = "other"
		},
		"the backbone has impossible sizes": func(c *protocol.JoinRequest,
			_ *transport.LocalExecutor) {
			c.Participant.Task.Width = 1 << 30
		},
		"the backbone's name \"\\n\"": func(c *protocol.JoinRequest,
			_ *transport.LocalExecutor) {
			c.Participant.Task.Backbone = "\n"
		},
	} {
		err := s.join(ctx, 2, change) // as client 0's, the backbone of client 2
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: the client says %v", say, err)
		}
		if !strings.Contains(s.log.String(), strings.NewReplacer(`"`, `\"`, `\n`, `\\n`).Replace(say)) {
			t.Errorf("the server does not log %q", say)
		}
	}
	if !strings.Contains(s.log.String(), "level=WARN") {
		t.Error("refusals are no warnings")
	}
	soon, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if err := s.join(soon, 0); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(s.log.String(),
		"another process runs as this client") {
		t.Errorf("a second client 0: %v", err)
	}
	if err := s.join(ctx, 4); err == nil || !strings.Contains(err.Error(), "clients 0 to 3") {
		t.Error(err)
	}
	cancel()
	<-served
	<-joined
	<-joined
}

// A client of the embedded server can do nothing on the subjects of another.
func TestPermissions(t *testing.T) {
	s := newSite(t, transporttest.FedPHA.Experiment(t))
	denied := make(chan error, 16)
	nc, err := nats.Connect(s.url, nats.UserInfo(certs.UserOf(1), ""),
		nats.CustomInboxPrefix(subjects.InboxOf("toy", 1)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{"pf.toy.from.2.reply", "pf.toy.to.1.order", "pf.toy.to.2.order",
		"pf.toy.from.2.join", "pf.toy.from.2.beat", "pf.toy.status",
		"pf.toy.hello.2", "_INBOX_client-2.x", "$JS.API.STREAM.LIST", "$JS.API.INFO", "$SYS.REQ.USER.INFO",
		"$SYS.REQ.SERVER.PING"} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, denied, fmt.Sprintf(`Publish to %q`, subject))
	}
	for _, subject := range []string{">", "pf.toy.to.2.>", "pf.toy.to.*.order", "pf.toy.from.1.*",
		"pf.toy.from.*.reply", "pf.toy.status", "_INBOX_client-2.>", "_INBOX.>"} {
		sub, err := nc.Subscribe(subject, func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		expectDenied(t, denied, fmt.Sprintf(`Subscription to %q`, subject))
		sub.Unsubscribe()
	}
	for _, user := range []string{"", "server", "client-", "client--1", "client-01", "client-1x", "worker",
		"promptfed-server"} {
		if c, err := nats.Connect(s.url, nats.UserInfo(user, "")); err == nil {
			c.Close()
			t.Errorf("user %q was let in", user)
		}
	}
}

func expectDenied(t *testing.T, denied chan error, what string) {
	t.Helper()
	select {
	case err := <-denied:
		if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") || !strings.Contains(err.Error(),
			what) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(time.Minute):
		t.Errorf("%s is allowed", what)
	}
}
