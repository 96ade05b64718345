package chaos

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// proxy is between clients and the server. It carries TLS connections in pieces that it delays, changes, repeats
// or swaps.
type proxy struct {
	listener net.Listener
	to       string
	delay    atomic.Int64                   // of every piece, up to twice this; nanoseconds
	damage   float64                        // share of the pieces that the proxy damages
	heard    func(from *link, piece []byte) // receives every piece of a client; may be nil
	up, down atomic.Int64                   // bytes of all connections
	still    atomic.Int64                   // nothing passes until then, Unix nanoseconds

	mu    sync.Mutex
	rand  *rand.Rand
	links map[*link]bool
	did   map[string]int // how often the proxy damaged pieces, by kind
}

// link is one connection through a proxy.
type link struct {
	client, server net.Conn
	still          atomic.Int64 // nothing passes until then, Unix nanoseconds
	slow           atomic.Int64 // everything is late until then
}

func newProxy(t testing.TB, to string, seed uint64) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	goldentest.NoError(t, err)
	p := &proxy{listener: l, to: to, rand: rand.New(rand.NewPCG(seed, 2)), links: map[*link]bool{},
		did: map[string]int{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.connect(c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		p.each(1, (*link).close)
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) connect(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.to, 2*time.Second)
	if err != nil {
		client.Close()
		return
	}
	k := &link{client: client, server: server}
	p.mu.Lock()
	p.links[k] = true
	p.mu.Unlock()
	go p.carry(k, server, client, &p.down)
	p.carry(k, client, server, &p.up)
	p.mu.Lock()
	delete(p.links, k)
	p.mu.Unlock()
}

func (k *link) close() {
	k.client.Close()
	k.server.Close()
}

// wait delays what passes.
func (p *proxy) wait(k *link) {
	d := time.Duration(p.delay.Load())
	if time.Now().UnixNano() < k.slow.Load() {
		d += 200 * time.Millisecond
	}
	if d > 0 {
		p.mu.Lock()
		d = time.Duration(p.rand.Int64N(2 * int64(d)))
		p.mu.Unlock()
		busytest.Delay(d)
	}
	busytest.Delay(time.Until(time.Unix(0, max(k.still.Load(), p.still.Load()))))
}

// carry carries one direction of a connection, and closes the connection when the direction ends.
func (p *proxy) carry(k *link, from, to net.Conn, total *atomic.Int64) {
	defer k.close()
	b := make([]byte, 64<<10)
	var late []byte
	for {
		var wait time.Time
		if late != nil {
			wait = time.Now().Add(time.Second)
		}
		from.SetReadDeadline(wait)
		n, err := from.Read(b)
		p.wait(k)
		if p.heard != nil && from == k.client {
			p.heard(k, b[:n])
		}
		now, next := p.damaged(b[:n])
		now = slices.Concat(now, late)
		total.Add(int64(len(now)))
		if _, e := to.Write(now); e != nil || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		late = next
	}
}

// damaged returns what the proxy sends in place of a piece, and what it sends after the next piece, or after a second.
func (p *proxy) damaged(piece []byte) (now, late []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(piece) == 0 || p.rand.Float64() >= p.damage {
		return piece, nil
	}
	var what string
	switch p.rand.IntN(3) {
	case 0:
		what, now = "sent twice", slices.Concat(piece, piece)
	case 1:
		what, now = "changed", slices.Clone(piece)
		now[p.rand.IntN(len(now))] ^= 1 << p.rand.IntN(8)
	default:
		what, late = "sent late", slices.Clone(piece)
	}
	p.did[what]++
	return now, late
}

// each applies a fault to a share of the connections.
func (p *proxy) each(share float64, do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.links {
		if p.rand.Float64() < share {
			do(k)
		}
	}
}

func (p *proxy) cut(share float64) { p.each(share, (*link).close) }

func (p *proxy) stall(share float64, d time.Duration) {
	p.each(share, func(k *link) { k.still.Store(time.Now().Add(d).UnixNano()) })
}

func (p *proxy) part(d time.Duration) { p.still.Store(time.Now().Add(d).UnixNano()) }

func (p *proxy) slow(share float64, d time.Duration) {
	p.each(share, func(k *link) { k.slow.Store(time.Now().Add(d).UnixNano()) })
}
