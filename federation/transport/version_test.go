package transport_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/protocol"
	"promptfed/federation/transport/transporttest"
)

// A client of any version that asks is told the server's, which it then refuses with its own words; one of this version
// refuses a server of another.
func TestVersions(t *testing.T) {
	s := newSite(t, transporttest.FedPHA.Experiment(t))
	ctx, cancel := context.WithCancel(transporttest.TestContext(t))
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	transporttest.Eventually(t, "serving", func() bool { return s.hub.Load() != nil })
	nc, err := nats.Connect(s.url, nats.UserInfo(certs.UserOf(1), ""), nats.CustomInboxPrefix("pf.toy.to.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m, err := nc.RequestWithContext(ctx, "pf.toy.from.1.hello", []byte(`{"asked":"otherwise"}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Data) < 4 || string(m.Data[:4]) != "PFL\x07" || protocol.Version != 7 {
		t.Errorf("%.20q", m.Data)
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
