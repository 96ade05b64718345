package chaos

import (
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// rogue connects to the server and is no client. It repeats recorded connections, whole and damaged, and speaks as a
// client with a key of its own.
type rogue struct {
	mu  sync.Mutex
	old []*recording
}

// recording is the beginning of a connection, as the client sent it.
type recording struct {
	of   *link
	text []byte
}

// hear keeps what a client sends.
func (g *rogue) hear(from *link, piece []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.old, func(r *recording) bool { return r.of == from })
	if i < 0 {
		i, g.old = len(g.old), append(g.old, &recording{of: from})
	}
	if r := g.old[i]; len(r.text) < 1<<20 {
		r.text = append(r.text, piece...)
	}
	if len(g.old) > 50 {
		g.old = g.old[1:]
	}
}

// strike makes a few connections and returns their number.
func (g *rogue) strike(s *site) (made int) {
	var list [][]byte
	g.mu.Lock()
	for range min(3, len(g.old)) {
		text := slices.Clone(g.old[s.rand.IntN(len(g.old))].text)
		list = append(list, text, text[:s.rand.IntN(len(text)+1)])
		if bent := slices.Clone(text); len(bent) > 0 {
			bent[s.rand.IntN(len(bent))] ^= 1 << s.rand.IntN(8)
			list = append(list, bent)
		}
	}
	g.mu.Unlock()
	for _, text := range list {
		if replay(s.address, text) {
			made++
		}
	}
	// Without certificates a client is whoever comes first, so that the rogue comes after the client.
	k := s.rand.IntN(s.clients)
	if _, err := os.Stat(s.at("serve", "hub", "members", certs.UserOf(k)+".json")); err != nil {
		return made
	}
	if err := impersonate(s.t, s.address, k); err == nil {
		s.t.Errorf("the server accepts another key of client %d", k)
	}
	return made + 1
}

// replay sends bytes to the server, and reads for a moment what comes back.
func replay(address string, text []byte) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil { // the server is away
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(50 * time.Millisecond))
	c.Write(text)
	io.Copy(io.Discard, c)
	return true
}

// impersonate calls as a client with a new key: it joins, asks for an instruction and sends a reply. It returns nil if
// the server answers any of these calls.
func impersonate(t testing.TB, address string, client int) error {
	who, err := certs.Identity{}.WithKey("")
	goldentest.NoError(t, err)
	call, ctx, instance := caller(t, who, certs.UserOf(client), address), busytest.Context(t), wire.NewID()
	_, joined := call.Join(ctx, &wire.JoinCall{Run: wire.NewID(), Instance: instance, Request: []byte("{}")})
	stream, asked := call.Next(ctx, &wire.Ask{Instance: instance})
	if asked == nil && !stream.Receive() {
		asked = stream.Err()
	}
	reply, answered := call.Answer(ctx)
	if answered == nil {
		reply.Send(&wire.Part{Reply: &wire.Reply{Id: wire.NewID(), Attempt: wire.NewID(), Instance: instance,
			Content: wire.ContentOf(nil)}})
		_, answered = reply.CloseAndReceive()
	}
	if joined == nil || asked == nil || answered == nil {
		return nil
	}
	return joined
}

// caller returns the client side of the protocol, over a connection of an identity.
func caller(t testing.TB, who certs.Identity, name, address string) wire.FederationClient {
	t.Helper()
	conf, err := who.ClientTLS(name, func() []byte { return nil })
	goldentest.NoError(t, err)
	var http2 http.Protocols
	http2.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: conf, Protocols: &http2}
	t.Cleanup(transport.CloseIdleConnections)
	return wire.NewFederationClient(&http.Client{Transport: transport}, "https://"+address, connect.WithGRPC())
}
