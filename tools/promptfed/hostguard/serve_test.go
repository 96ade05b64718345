package hostguard

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"promptfed/federation/net/listen"
	"promptfed/runtime/busytest"
)

// pipes is a listener of connections in memory; open counts those that a server accepted and has not closed.
type pipes struct {
	waiting chan net.Conn
	closed  chan struct{}
	open    atomic.Int64
}

type pipe struct {
	net.Conn
	of     *pipes
	closed atomic.Bool
}

func (c *pipe) Close() error {
	if !c.closed.Swap(true) {
		c.of.open.Add(-1)
	}
	return c.Conn.Close()
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		l.open.Add(1)
		return &pipe{Conn: c, of: l}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error {
	close(l.closed)
	return nil
}

func (l *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns a connection that waits until the server accepts it, and has sent a text then.
func (l *pipes) dial(sent string) net.Conn {
	ours, theirs := net.Pipe()
	go func() {
		l.waiting <- theirs
		io.WriteString(ours, sent)
	}()
	return ours
}

// served runs a test in virtual time, in which Serve answers requests with a handler.
func served(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, l *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{waiting: make(chan net.Conn), closed: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, l, handler) }()
		test(t, l)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

const get = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// answer returns the status line on a connection and the time that it took.
func answer(c net.Conn) (string, time.Duration) {
	began := time.Now()
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), time.Since(began)
}

// Idle connections take no more than Beside of the process's files. A request behind them is answered when the first of
// them ends, after headerTime.
func TestServeLimitsConnections(t *testing.T) {
	served(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, l *pipes) {
		for range listen.Beside() {
			idle := l.dial("GET / HT")
			defer idle.Close()
			go io.Copy(io.Discard, idle) // a socket would have room for what the server says
		}
		synctest.Wait()
		c := l.dial(get)
		defer c.Close()
		synctest.Wait()
		if open := l.open.Load(); open != int64(listen.Beside()) {
			t.Errorf("%d connections are open, not %d", open, listen.Beside())
		}
		if status, took := answer(c); status != "HTTP/1.1 200 OK" || took != headerTime {
			t.Errorf("%q after %v", status, took)
		}
	})
}

// A body that does not arrive ends its request after readTime. A handler that takes longer than writeTime has the time
// for its response only if it calls Extend.
func TestServeLimitsRequests(t *testing.T) {
	var read error
	body := func(_ http.ResponseWriter, r *http.Request) { _, read = io.ReadAll(r.Body) }
	served(t, body, func(t *testing.T, l *pipes) {
		c := l.dial("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nbody")
		defer c.Close()
		if _, took := answer(c); took != readTime || read == nil {
			t.Errorf("it is read in %v, %v", took, read)
		}
	})
	for _, extends := range []bool{false, true} {
		slow := func(w http.ResponseWriter, _ *http.Request) {
			busytest.Delay(2 * writeTime)
			if extends {
				Extend(w)
			}
			w.Write([]byte("done"))
		}
		served(t, slow, func(t *testing.T, l *pipes) {
			c := l.dial(get)
			defer c.Close()
			status, took := answer(c)
			if (status == "HTTP/1.1 200 OK") != extends || took != 2*writeTime {
				t.Errorf("extends %v: %q after %v", extends, status, took)
			}
		})
	}
}
