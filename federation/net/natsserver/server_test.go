package natsserver_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/net/authority"
	"promptfed/federation/net/natsserver"
	"promptfed/federation/net/nettest"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// A server on all addresses states an address that another machine can use: never the unspecified one, and a name of
// its certificate where it has one. A server on one address states that.
func TestURL(t *testing.T) {
	ca := nettest.NewAuthority(t, "localhost", "host.example")
	named := ca.TLS("server")
	for listen, e := range map[string]natsserver.Options{":0": {}, "0.0.0.0:0": {TLS: named}, "127.0.0.1:0": {}} {
		e.Listen, e.Log = listen, slog.New(slog.DiscardHandler)
		s, err := natsserver.Start(e)
		goldentest.NoError(t, err)
		defer s.Close()
		u, err := url.Parse(s.URL())
		goldentest.NoError(t, err)
		switch host := u.Hostname(); {
		case e.TLS != nil && (host != "host.example" || u.Scheme != "tls"):
			t.Errorf("%s with a certificate for host.example: %s", listen, u)
		case e.TLS != nil: // a worker's certificate opens a connection
			connect(t, "tls://localhost:"+u.Port(), nats.Secure(ca.TLS("worker"))).Close()
		case listen == "127.0.0.1:0" && host != "127.0.0.1":
			t.Errorf("%s: %s", listen, u)
		case host == "" || host == "0.0.0.0" || host == "::":
			t.Errorf("%s: %s", listen, u)
		}
	}
}

// connect connects to a server, which refuses a client that needs seconds for that on a busy machine.
func connect(t *testing.T, url string, options ...nats.Option) (c *nats.Conn) {
	t.Helper()
	busytest.Until(t, "a connection to "+url, func() bool {
		var err error
		if c, err = nats.Connect(url, append(options, nats.Timeout(time.Hour))...); err != nil {
			t.Log(err)
		}
		return err == nil
	})
	return c
}

// The name of a user gives no permission without its password, and a taken port is an error that names it. No file is
// left of a server.
func TestServer(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	t.Setenv("TMPDIR", dir)
	s, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Token: "secret", Log: log})
	goldentest.NoError(t, err)
	busytest.Until(t, "a refusal", func() bool { // the server gives a client two seconds
		c, err := nats.Connect(s.URL(), nats.UserInfo("promptfed-run", "guess"), nats.Timeout(time.Hour))
		if err == nil {
			c.Close()
			t.Fatal("a guess opens a connection")
		}
		return errors.Is(err, nats.ErrAuthorization)
	})
	u, err := url.Parse(s.URL())
	goldentest.NoError(t, err)
	_, err = natsserver.Start(natsserver.Options{Listen: u.Host, Log: log})
	goldentest.WantError(t, err, "cannot listen on "+u.Host)
	s.Close()
	if c, err := net.Dial("tcp", u.Host); err == nil {
		c.Close()
		t.Errorf("%s still answers", u.Host)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// Beyond a number of connections the server refuses more, also of those that nobody has authenticated, and takes others
// once these are closed. The run keeps its own.
func TestConnections(t *testing.T) {
	s, err := natsserver.Start(natsserver.Options{Listen: "127.0.0.1:0", Token: "secret",
		Log: slog.New(slog.DiscardHandler)})
	goldentest.NoError(t, err)
	defer s.Close()
	u, err := url.Parse(s.URL())
	goldentest.NoError(t, err)
	var refused atomic.Int64
	var open []net.Conn
	busytest.Until(t, "a refused connection", func() bool { // on a busy machine the first ones end meanwhile
		for range 100 {
			c, err := net.Dial("tcp", u.Host)
			goldentest.NoError(t, err)
			open = append(open, c)
			go func() {
				text, _ := io.ReadAll(c)
				if strings.Contains(string(text), "-ERR 'maximum connections exceeded'") {
					refused.Add(1)
				}
			}()
		}
		return refused.Load() > 0
	})
	if s.Conn().Status() != nats.CONNECTED {
		t.Errorf("the run's own connection is %v", s.Conn().Status())
	}
	for _, c := range open {
		c.Close()
	}
	connect(t, s.URL(), nats.UserInfo("worker", "secret")).Close()
}

// The connection of a revoked certificate is closed, and no other.
func TestRevokedConnections(t *testing.T) {
	dir, signer := t.TempDir(), t.TempDir()
	if _, err := authority.Make(dir, signer, 0, []string{"localhost"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	own, err := authority.ServerTLS(dir)
	goldentest.NoError(t, err)
	list, err := authority.Revoked(dir)
	goldentest.NoError(t, err)
	s, err := natsserver.Start(natsserver.Options{Listen: "localhost:0", TLS: own, Revoked: list,
		Log: slog.New(slog.DiscardHandler)})
	goldentest.NoError(t, err)
	defer s.Close()
	closed := make(chan string, 2)
	for _, name := range []string{"worker", "server"} {
		conf, err := authority.ClientTLS(dir, name)
		goldentest.NoError(t, err)
		defer connect(t, s.URL(), nats.Secure(conf), nats.NoReconnect(),
			nats.ClosedHandler(func(*nats.Conn) { closed <- name })).Close()
	}
	err = authority.Replace(dir, signer, []string{"worker"}, nil, nil, time.Hour, func(string, ...any) {})
	goldentest.NoError(t, err)
	if got := <-closed; got != "worker" || len(closed) != 0 || s.Conn().Status() != nats.CONNECTED {
		t.Errorf("the connection of %s is closed, and %d more", got, len(closed))
	}
}
