package chaos

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is between clients and the NATS server. It reads the messages of clients one by one, so that it can repeat a
// reply, damage it, or send it after the next message.
type proxy struct {
	listener net.Listener
	to       string
	delay    atomic.Int64               // of every piece of a stream, up to twice this; nanoseconds
	tamper   float64                    // share of replies that the proxy tampers with
	seen     func(subject, body string) // receives every reply; may be nil
	up, down atomic.Int64               // bytes of all streams

	mu    sync.Mutex
	rand  *rand.Rand
	links map[*link]bool
	does  map[string]int // how often the proxy tampered with replies, by kind
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
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, rand: rand.New(rand.NewPCG(seed, 2)), links: map[*link]bool{},
		does: map[string]int{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		p.each(1, func(k *link) { k.close() })
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) carry(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.to, 2*time.Second)
	if err != nil {
		client.Close()
		return
	}
	k := &link{client: client, server: server}
	p.mu.Lock()
	p.links[k] = true
	p.mu.Unlock()
	go func() {
		p.back(k)
		k.close()
	}()
	p.forth(k)
	k.close()
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
		time.Sleep(d)
	}
	time.Sleep(time.Until(time.Unix(0, k.still.Load())))
}

// back carries what the server sends.
func (p *proxy) back(k *link) {
	b := make([]byte, 64<<10)
	for {
		n, err := k.server.Read(b)
		p.wait(k)
		p.down.Add(int64(n))
		if _, e := k.client.Write(b[:n]); err != nil || e != nil {
			return
		}
	}
}

// forth carries what the client sends, message by message.
func (p *proxy) forth(k *link) {
	from := bufio.NewReaderSize(k.client, 64<<10)
	var held []byte
	for {
		message, head, err := next(from)
		if err != nil {
			return
		}
		p.wait(k)
		out := [][]byte{message}
		if subject := replySubject(message); subject != "" {
			if p.seen != nil {
				p.seen(subject, string(message[head:len(message)-2]))
			}
			out = p.tampered(message, head)
		}
		if len(out) == 0 {
			held = message
			continue
		}
		for _, m := range append(out, held) {
			p.up.Add(int64(len(m)))
			if _, err := k.server.Write(m); err != nil {
				return
			}
		}
		held = nil
	}
}

// next reads one operation of the NATS protocol with its payload, which begins at head.
func next(r *bufio.Reader) (message []byte, head int, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, 0, err
	}
	words := strings.Fields(string(line))
	if len(words) < 3 || words[0] != "PUB" && words[0] != "HPUB" {
		return line, len(line), nil
	}
	n, err := strconv.Atoi(words[len(words)-1])
	if err != nil || n < 0 || n > 64<<20 {
		return line, len(line), nil
	}
	head = len(line)
	if words[0] == "HPUB" { // the payload follows the headers
		if h, err := strconv.Atoi(words[len(words)-2]); err == nil && h >= 0 && h <= n {
			head += h
		}
	}
	message = append(line, make([]byte, n+2)...)
	_, err = io.ReadFull(r, message[len(line):])
	return message, head, err
}

// replySubject returns the subject of a reply of a client, or "" for other messages.
func replySubject(message []byte) string {
	words := bytes.Fields(message[:min(len(message), 200)])
	if len(words) > 1 && bytes.Equal(words[0], []byte("PUB")) && replies.Match(words[1]) {
		return string(words[1])
	}
	return ""
}

var replies = regexp.MustCompile(`^pf\.default\.from\.\d+\.reply$`)

// tampered returns what the proxy sends in place of a reply; nothing if it sends the reply later.
func (p *proxy) tampered(message []byte, head int) [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if head >= len(message)-2 || p.rand.Float64() >= p.tamper {
		return [][]byte{message}
	}
	bent := bytes.Clone(message)
	bent[head+p.rand.IntN(len(message)-2-head)] ^= 1 << p.rand.IntN(8)
	var what string
	var out [][]byte
	switch p.rand.IntN(4) {
	case 0:
		what, out = "sent twice", [][]byte{message, message}
	case 1:
		what, out = "sent damaged, then whole", [][]byte{bent, message}
	case 2:
		what, out = "sent damaged", [][]byte{bent}
	default:
		what = "sent late"
	}
	p.does[what]++
	return out
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

func (p *proxy) slow(share float64, d time.Duration) {
	p.each(share, func(k *link) { k.slow.Store(time.Now().Add(d).UnixNano()) })
}
