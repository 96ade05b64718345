package transport_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"promptfed/federation/transport"
)

// Who runs the NATS server can hear all, and send whatever it likes in anybody's name; it changes nothing that is
// learned. So it is with the keys that both sides made, and with those of certificates.
func TestOperator(t *testing.T) {
	want, records := simulated(t, fedpha.toy(t), false)
	for _, certified := range []bool{false, true} {
		t.Run(fmt.Sprint("certified=", certified), func(t *testing.T) {
			s := newSite(t, fedpha.toy(t))
			n := foreign(t, server.RANDOM_PORT)
			defer n.Shutdown()
			s.url = n.ClientURL()
			var err error
			if s.conn, err = transport.Dial(context.Background(), s.url, "hub", s.log.logger()); err != nil {
				t.Fatal(err)
			}
			defer s.conn.Close()
			if certified {
				ca := newAuthority(t)
				s.set.Identity = ca.identity("server")
				s.who = func(client int) transport.Identity { return ca.identity(transport.UserOf(client)) }
			}
			p := &operator{run: s.id, of: 4, old: map[string][]*nats.Msg{}}
			if p.nc, err = nats.Connect(s.url); err != nil {
				t.Fatal(err)
			}
			defer p.nc.Close()
			for _, subject := range []string{"pf.toy.to.*.order", "pf.toy.from.*.reply", "pf.toy.from.*.beat",
				"pf.toy.from.*.join"} {
				if _, err := p.nc.Subscribe(subject, p.hear); err != nil {
					t.Fatal(err)
				}
			}
			p.nc.Flush()
			s.run()
			if s.learned() != want || s.records() != records {
				t.Error("other bytes or records than in one process")
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if got := s.hub.Load().Totals(); p.sent < 100 || got.Dropped < 10 || !strings.Contains(s.log.String(),
				"an order is dropped") {
				t.Errorf("%d messages sent, %+v", p.sent, got)
			}
		})
	}
}

// A client whose certificate is another's, or none, is refused by the hub, and a hub without the server's by clients;
// so it is where a key that was seen before is another now.
func TestIdentities(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	for say, c := range map[string]struct{ server, client transport.Identity }{
		"the certificate is that of \"client-1\", not of client-0": {ca.identity("server"), ca.identity("client-1")},
		"client-0 shows no certificate":                            {ca.identity("server"), transport.Identity{}},
		"the certificate of server: x509":                          {other.identity("server"), ca.identity("client-0")},
		"the certificate is that of \"client-2\", not of server":   {ca.identity("client-2"), ca.identity("client-0")},
		"server shows no certificate":                              {transport.Identity{}, ca.identity("client-0")},
	} {
		s := newSite(t, fedpha.toy(t))
		s.set.Identity = c.server
		s.who = func(int) transport.Identity { return c.client }
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.serve(ctx, false) }()
		eventually(t, "serving", func() bool { return s.hub.Load() != nil })
		if err := s.join(ctx, 0); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: the client says %v", say, err)
		}
		cancel()
		<-served
	}
	if _, err := transport.IdentityOf(&tls.Config{}); err == nil {
		t.Error("a configuration without a certificate is taken")
	}
}
