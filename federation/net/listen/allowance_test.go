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
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"promptfed/federation/net/certs"
)

// A client that sends pings as fast as it can is read slowly, on all of its connections together, also on new ones.
// Its connections are closed with a line in the log. Another client is not affected.
func TestAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t, time.Hour, "127.0.0.1")
		l, log := openVirtual(t, Options{Identity: identity(t, dir, "server")})
		conf := clientTLS(t, identity(t, dir, "client-1"), "client-1")
		conf.NextProtos = []string{"h2"}
		var pings bytes.Buffer
		for f := http2.NewFramer(&pings, nil); pings.Len() < 64<<10; {
			f.WritePing(false, [8]byte{})
		}
		over, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for over.Err() == nil {
					c, err := dial(t, l, conf, "127.0.0.1")
					if err != nil {
						continue
					}
					go io.Copy(io.Discard, c)
					c.Write([]byte(http2.ClientPreface))
					http2.NewFramer(c, nil).WriteSettings()
					for err == nil && over.Err() == nil {
						_, err = c.Write(pings.Bytes())
					}
				}
			})
		}
		time.Sleep(5 * time.Second)
		log.says(t, "it sends too much that belongs to no message")
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
		stop()
		all.Wait()
	})
}

// An allowance fills again with time, up to its largest value, and its user gets back what it sent in messages.
func TestAllowanceRefills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAllowance()
		a.spend(overheadBurst + 1000)
		if a.left > 0 {
			t.Errorf("%d bytes are left", a.left)
		}
		a.spend(-500)
		c := &Conn{}
		c.closed, c.close = context.WithCancel(t.Context())
		c.allowance.Store(a)
		for pauses := range 2 { // with 500 bytes too many and with none left, at 64 KiB a second
			if err := c.waitForAllowance(); err != nil || c.waited != time.Duration(pauses+1)*overheadPause {
				t.Errorf("it waited %v: %v", c.waited, err)
			}
			a.spend(a.left)
		}
		time.Sleep(time.Hour)
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
	})
}

// A user gets back what was read as messages, with a byte of each 256 for their frames, and a byte of each 64 that it
// was sent. Its time counts from the last call that gave it a byte.
func TestAllowanceIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &allowance{at: time.Now()}
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
		a.left = 0
		for range 2 { // a byte comes in 15 microseconds
			if a.spend(0) != 0 {
				t.Errorf("%d bytes came", a.left)
			}
			time.Sleep(10 * time.Microsecond)
		}
		if a.spend(0) != 1 {
			t.Error("a call that gave nothing takes time away")
		}
	})
}

// A listener forgets users that are gone and have all of their allowance.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := func(name string) *Conn { return &Conn{peer: certs.Peer{Proof: certs.Proof{Key: []byte(name)}}} }
		spent := newAllowance()
		spent.spend(1 << 20)
		l := &Listener{connections: map[*Conn]bool{key("here"): true},
			allowances: map[string]*allowance{"here": newAllowance(), "gone": newAllowance(), "spent": spent}}
		if l.forget(); len(l.allowances) != 2 || l.allowances["gone"] != nil {
			t.Errorf("%v are left", l.allowances)
		}
	})
}

// A connection that was closed is not admitted.
func TestAdmitAfterClose(t *testing.T) {
	l := &Listener{options: Options{Log: slog.New(slog.DiscardHandler)}}
	c := &Conn{listener: l}
	if err := c.Admit(); err == nil || err.Error() != "it was closed" || l.refused != 1 {
		t.Errorf("%v, %d refused", err, l.refused)
	}
}
