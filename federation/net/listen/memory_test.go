package listen

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// memory is a network inside the process, for tests in virtual time: it is a net.Listener and its only clients.
type memory struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
	port     atomic.Int64 // of the last connection
}

// memoryConn is one end of a connection.
type memoryConn struct {
	net.Conn
	local, remote *net.TCPAddr
}

func (c memoryConn) LocalAddr() net.Addr  { return c.local }
func (c memoryConn) RemoteAddr() net.Addr { return c.remote }

func (c memoryConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.ErrClosedPipe) { // closed on this side
		err = net.ErrClosed
	}
	return n, err
}

func newMemory() *memory {
	return &memory{accepted: make(chan net.Conn, 64), closed: make(chan struct{})}
}

func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.accepted:
		if c == nil { // a test sends it for an error that passes
			return nil, errors.New("too many open files")
		}
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

// dial connects from an address.
func (m *memory) dial(t testing.TB, from string) net.Conn {
	t.Helper()
	port := int(m.port.Add(1))
	local, remote := &net.TCPAddr{IP: net.ParseIP(from), Port: port}, m.Addr().(*net.TCPAddr)
	client, near := net.Pipe()
	far, server := net.Pipe()
	carry(near, far)
	carry(far, near)
	t.Cleanup(func() { client.Close() })
	m.accepted <- memoryConn{server, remote, local}
	return memoryConn{client, local, remote}
}

// carry copies what arrives at one end to another, and keeps a little, as kernels do, so that a writer does not wait
// for the reader. It drops what arrives after the reader has gone: a writer that waited for ever with a mutex would
// stop virtual time.
func carry(from, to net.Conn) {
	kept, over := make(chan []byte, 8), make(chan struct{})
	go func() {
		defer close(kept)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			select {
			case kept <- b[:n]:
			case <-over:
			}
		}
	}()
	go func() {
		defer close(over)
		defer to.Close()
		for b := range kept {
			if _, err := to.Write(b); err != nil {
				return
			}
		}
	}()
}
