package transport_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"promptfed/federation/net/certs"
	"promptfed/federation/transport/exchange"
	"promptfed/federation/transport/transporttest"
)

// Who runs the NATS server can hear all, and send whatever it likes in anybody's name; it changes nothing that is
// learned. So it is with the keys that both sides made, and with those of certificates.
func TestOperator(t *testing.T) {
	t.Parallel() // it waits for messages that are sent again
	want, records := simulated(t, transporttest.FedPHA.Experiment(t), false)
	for _, certified := range []bool{false, true} {
		t.Run(fmt.Sprint("certified=", certified), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, transporttest.FedPHA.Experiment(t))
			n := transporttest.StartNATS(t, server.RANDOM_PORT)
			defer n.Shutdown()
			s.url = n.ClientURL()
			var err error
			if s.conn, err = exchange.Dial(context.Background(), s.url, "hub", s.log.Logger()); err != nil {
				t.Fatal(err)
			}
			defer s.conn.Close()
			if certified {
				ca := transporttest.NewAuthority(t)
				s.set.Identity = ca.Identity("server")
				s.who = func(client int) certs.Identity { return ca.Identity(certs.UserOf(client)) }
			}
			p := &transporttest.Operator{Run: s.id, Total: 4, Old: map[string][]*nats.Msg{}}
			if p.Nc, err = nats.Connect(s.url); err != nil {
				t.Fatal(err)
			}
			defer p.Nc.Close()
			for _, subject := range []string{"pf.toy.to.*.order", "pf.toy.from.*.reply", "pf.toy.from.*.beat",
				"pf.toy.from.*.join"} {
				if _, err := p.Nc.Subscribe(subject, p.Hear); err != nil {
					t.Fatal(err)
				}
			}
			p.Nc.Flush()
			s.run()
			if s.learned() != want || s.records() != records {
				t.Error("other bytes or records than in one process")
			}
			p.Mu.Lock()
			defer p.Mu.Unlock()
			if got := s.hub.Load().Totals(); p.Sent < 100 || got.Dropped < 10 || !strings.Contains(s.log.String(),
				"an instruction is dropped") {
				t.Errorf("%d messages sent, %+v", p.Sent, got)
			}
		})
	}
}

// A client whose certificate is another's, or none, is refused by the hub, and a hub without the server's by clients;
// so it is where a key that was seen before is another now.
func TestIdentities(t *testing.T) {
	ca, other := transporttest.NewAuthority(t), transporttest.NewAuthority(t)
	for say, c := range map[string]struct{ server, client certs.Identity }{
		"the certificate belongs to \"client-1\", not to client-0": {ca.Identity("server"), ca.Identity("client-1")},
		"client-0 sent no certificate":                             {ca.Identity("server"), certs.Identity{}},
		"the certificate of server: x509":                          {other.Identity("server"), ca.Identity("client-0")},
		"the certificate belongs to \"client-2\", not to server":   {ca.Identity("client-2"), ca.Identity("client-0")},
		"server sent no certificate":                               {certs.Identity{}, ca.Identity("client-0")},
	} {
		s := newSite(t, transporttest.FedPHA.Experiment(t))
		s.set.Identity = c.server
		s.who = func(int) certs.Identity { return c.client }
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.serve(ctx, false) }()
		transporttest.Eventually(t, "serving", func() bool { return s.hub.Load() != nil })
		if err := s.join(ctx, 0); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: the client says %v", say, err)
		}
		cancel()
		<-served
	}
	if _, err := certs.FromTLS(&tls.Config{}); err == nil {
		t.Error("a configuration without a certificate is taken")
	}
}
