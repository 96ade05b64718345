package transport_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/transport/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/transporttest"
)

// A client of version 1 asks at its own subject, and is told the server's version, which it then refuses with its own
// words; one of this version refuses a server of another.
func TestVersions(t *testing.T) {
	s := newSite(t, transporttest.FedPHA.Experiment(t))
	ctx, cancel := context.WithCancel(transporttest.Within(t))
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	transporttest.Eventually(t, "serving", func() bool { return s.hub.Load() != nil })
	nc, err := nats.Connect(s.url, nats.UserInfo(certs.UserOf(1), ""), nats.CustomInboxPrefix("_INBOX_client-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m, err := nc.RequestWithContext(ctx, "pf.toy.hello.1", nil)
	if err != nil {
		t.Fatal(err)
	}
	var hello struct{ Version int }
	if err := json.Unmarshal(m.Data, &hello); err != nil || hello.Version != protocol.Version ||
		protocol.Version < 2 {
		t.Errorf("%v, %s", err, m.Data)
	}
	cancel()
	<-served

	sub, err := s.nats.Conn().Subscribe("pf.toy.from.2.hello",
		func(m *nats.Msg) { m.Respond([]byte("PFL\x01\x00\x00\x00\x00\x00\x00")) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	want := fmt.Sprintf("the message has version 1, this program %d; use the same release", protocol.Version)
	if err := s.join(ctx, 2); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
