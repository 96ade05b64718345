package listen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"promptfed/federation/net/certs"
)

// A client that sends pings as fast as it can is read slowly, on all of its connections together, also on new ones.
// Its connections are closed with a line in the log. Another client is not affected.
func TestAllowance(t *testing.T) {
	t.Parallel()
	dir := folder(t, time.Hour, "127.0.0.1")
	l, log := open(t, Options{Identity: identity(t, dir, "server")})
	conf := clientTLS(t, identity(t, dir, "client-1"), "client-1")
	conf.NextProtos = []string{"h2"}
	var pings bytes.Buffer
	for f := http2.NewFramer(&pings, nil); pings.Len() < 64<<10; {
		f.WritePing(false, [8]byte{})
	}
	var all sync.WaitGroup
	end := time.Now().Add(5 * time.Second)
	for range 4 {
		all.Go(func() {
			for time.Now().Before(end) {
				c, err := dial(t, l, conf, "127.0.0.1")
				if err != nil {
					continue
				}
				go ended(c, time.Minute)
				c.Write([]byte(http2.ClientPreface))
				http2.NewFramer(c, nil).WriteSettings()
				for err == nil {
					_, err = c.Write(pings.Bytes())
				}
			}
		})
	}
	log.waitFor(t, "it sends too much that belongs to no message")
	beyond := 0
	l.mu.Lock()
	for _, a := range l.allowances {
		a.mu.Lock()
		beyond -= a.left
		a.mu.Unlock()
	}
	l.mu.Unlock()
	if most := 64 << 10; beyond < 0 || beyond > most { // debt of a read
		t.Errorf("%d bytes beyond the allowance", beyond)
	}
	if text, err := get(t, clientTLS(t, identity(t, dir, "client-2"), "client-2"), l); err != nil ||
		text != "HTTP/2.0 client-2" {
		t.Errorf("%q, %v", text, err)
	}
	all.Wait()
}

// An allowance fills again with time, up to its largest value, and its user gets back what it sent in messages.
func TestAllowanceRefills(t *testing.T) {
	a := newAllowance()
	a.spend(overheadBurst + 1000)
	if a.left > 0 {
		t.Errorf("%d bytes are left", a.left)
	}
	a.spend(-500)
	c := &Conn{}
	c.closed, c.close = context.WithCancel(t.Context())
	c.allowance.Store(a)
	if err := c.waitForAllowance(); err != nil || c.waited == 0 || c.waited > time.Second {
		t.Errorf("it waited %v: %v", c.waited, err)
	}
	a.at = a.at.Add(-time.Hour)
	if a.spend(0) != overheadBurst {
		t.Errorf("%d bytes are left", a.left)
	}
	if err := c.waitForAllowance(); err != nil || c.waited != 0 {
		t.Errorf("it waited %v: %v", c.waited, err)
	}
	a.spend(1 << 30)
	c.close()
	if err := c.waitForAllowance(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A user gets back what was read as messages, with a byte of each 256 for their frames, and a byte of each 64 that it
// was sent. Its time counts from the last call that gave it a byte.
func TestAllowanceIsGivenBack(t *testing.T) {
	a := &allowance{at: time.Now().Add(time.Hour)} // nothing comes with time
	other, conn := net.Pipe()
	defer other.Close()
	go io.Copy(io.Discard, other)
	c := &Conn{Conn: conn}
	c.allowance.Store(a)
	if c.Received(2560); a.left != 2570 {
		t.Errorf("%d bytes for 2560 of messages", a.left)
	}
	if n, err := c.Write(make([]byte, 640)); n != 640 || err != nil || a.left != 2580 {
		t.Errorf("%d bytes after 640 that were sent, %v", a.left, err)
	}
	for range 1000 {
		a.left, a.at = 0, time.Now()
		if at := a.at; a.spend(0) == 0 { // within 15 microseconds
			if a.at != at {
				t.Error("a call that gave nothing takes time away")
			}
			break
		}
	}
}

// A listener forgets users that are gone and have all of their allowance.
func TestForget(t *testing.T) {
	key := func(name string) *Conn { return &Conn{peer: certs.Peer{Proof: certs.Proof{Key: []byte(name)}}} }
	spent := newAllowance()
	spent.spend(1 << 20)
	l := &Listener{connections: map[*Conn]bool{key("here"): true},
		allowances: map[string]*allowance{"here": newAllowance(), "gone": newAllowance(), "spent": spent}}
	if l.forget(); len(l.allowances) != 2 || l.allowances["gone"] != nil {
		t.Errorf("%v are left", l.allowances)
	}
}

// A connection that was closed is not admitted.
func TestAdmitAfterClose(t *testing.T) {
	l := &Listener{options: Options{Log: slog.New(slog.DiscardHandler)}}
	c := &Conn{l: l}
	if err := c.Admit(); err == nil || err.Error() != "it was closed" || l.refused != 1 {
		t.Errorf("%v, %d refused", err, l.refused)
	}
}
