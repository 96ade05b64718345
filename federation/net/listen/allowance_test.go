package listen

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
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
