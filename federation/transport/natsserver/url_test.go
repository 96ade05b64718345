package natsserver_test

import (
	"log/slog"
	"net/url"
	"testing"

	"promptfed/federation/transport/natsserver"
	"promptfed/federation/transport/transporttest"
)

// A server on all addresses tells one that another machine can use: never the unspecified one, and a name of its
// certificate where it has one; a server on one address tells that.
func TestURL(t *testing.T) {
	ca := transporttest.NewAuthority(t)
	named := ca.TLS("server", "localhost", "host.example")
	for listen, e := range map[string]natsserver.Options{":0": {}, "0.0.0.0:0": {TLS: named}, "127.0.0.1:0": {}} {
		e.Listen, e.Run, e.Limit, e.Log = listen, "r", 1<<20, slog.New(slog.DiscardHandler)
		s, err := natsserver.Start(e)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		switch host := u.Hostname(); {
		case e.TLS != nil && (host != "host.example" || u.Scheme != "tls"):
			t.Errorf("%s with a certificate for host.example: %s", listen, u)
		case listen == "127.0.0.1:0" && host != "127.0.0.1":
			t.Errorf("%s: %s", listen, u)
		case host == "" || host == "0.0.0.0" || host == "::":
			t.Errorf("%s: %s", listen, u)
		}
	}
}
