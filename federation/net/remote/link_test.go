package remote

import (
	"errors"
	"io"
	"net"
	"testing"
)

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
