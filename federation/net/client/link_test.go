package client

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/net/certs"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// Servers on this machine need no proxy, and net/http reads its address once in a process.
func TestMain(m *testing.M) {
	os.Setenv("HTTPS_PROXY", "https://proxy.example")
	os.Setenv("NO_PROXY", "localhost") // whatever this machine exempts
	os.Exit(m.Run())
}

// A proxy that speaks neither HTTP nor SOCKS is refused.
func TestWrongProxy(t *testing.T) {
	goldentest.WantError(t, (&Link{URL: "https://server.example"}).open(1), "HTTPS_PROXY: expected http://HOST:PORT")
}

// Each request for the status, of which a terminal makes one a second, uses the connection of the first.
func TestStatusKeepsItsConnection(t *testing.T) {
	m := enginetest.Build(t, "promptfl", nil, nil)
	h, err := server.Open(server.Settings{Listen: "127.0.0.1:0", ID: wire.NewID(), Clients: 1, Method: m})
	goldentest.NoError(t, err)
	defer h.Close()
	who, err := certs.Identity{}.WithKey("")
	goldentest.NoError(t, err)
	l := &Link{URL: h.URL(), Name: certs.StatusUser, Identity: who}
	defer l.Close()
	var first *net.Conn
	for n := range 3 {
		if _, err := l.FetchStatus(busytest.Context(t)); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = l.conn.Load()
		} else if l.conn.Load() != first {
			t.Error("a request makes another connection")
		}
	}
}

// A server that seems to speak another protocol is one whose messages were changed on the way, unless it does so again
// and again.
func TestOtherProtocols(t *testing.T) {
	l := &Link{URL: "https://server.example:8443", Name: "client-0"}
	other := &net.OpError{Op: "remote error", Err: errors.New("tls: protocol version not supported")}
	for _, c := range []struct {
		err  error
		ends bool
	}{{other, false}, {other, false}, {io.EOF, false}, {other, false}, {other, false}, {other, true}} {
		if got := l.final(c.err); (got != nil) != c.ends {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	refused := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")} // encrypted, so not changed
	if !errors.Is(l.final(refused), ErrRefused) {
		t.Error("a client whose certificate is refused asks again")
	}
}
