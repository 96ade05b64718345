package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/protocol"
	"promptfed/runtime/busytest"
)

// attacker is the holder of a certificate who speaks the protocol without the code of promptfed join.
type attacker struct {
	protocol.FederationClient
	*http.Transport
	server *server
	token  string
	Name   string // of the certificate
}

// attacker returns the holder of a certificate of the server's folder. An empty name means no certificate.
func (s *server) attacker(name string) *attacker {
	return s.attackerWith(s.tls(s.at("certs"), name), name)
}

func (s *server) attackerWith(conf *tls.Config, name string) *attacker {
	s.t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	a := &attacker{server: s, Name: name, Transport: &http.Transport{TLSClientConfig: conf, Protocols: &protocols}}
	a.FederationClient = protocol.NewFederationClient(&http.Client{Transport: a}, s.url(), connect.WithGRPC())
	s.t.Cleanup(a.CloseIdleConnections)
	return a
}

// stranger returns somebody with a new key and the server's token, who uses a name.
func (s *server) stranger(name string) *attacker {
	s.t.Helper()
	who, err := certs.Identity{}.WithKey("")
	if err != nil {
		s.t.Fatal(err)
	}
	conf, err := who.ClientTLS(name, func() []byte { return nil })
	if err != nil {
		s.t.Fatal(err)
	}
	a := s.attackerWith(conf, name)
	a.token = "secret"
	return a
}

// RoundTrip adds the token.
func (a *attacker) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.Transport.RoundTrip(r)
}

// stream is an open stream of an attacker. The attacker reads the server's messages from it.
type stream struct {
	*connect.BidiStreamForClientSimple[protocol.ClientMessage, protocol.ServerMessage]
	run string // identity of the run
}

// open opens a stream.
func (a *attacker) open(ctx context.Context) (*stream, error) {
	i, err := a.Invite(ctx, &protocol.InvitationRequest{Version: protocol.Version})
	if err != nil {
		return nil, err
	}
	s, err := a.Participate(ctx)
	if err != nil {
		return nil, err
	}
	return &stream{s, i.Run}, nil
}

// send sends a message of any kind.
func (s *stream) send(kind any) error {
	m := &protocol.ClientMessage{}
	switch v := kind.(type) {
	case *protocol.Join:
		m.Kind = &protocol.ClientMessage_Join{Join: v}
	case *protocol.Reply:
		m.Kind = &protocol.ClientMessage_Reply{Reply: v}
	case *protocol.Fetch:
		m.Kind = &protocol.ClientMessage_Fetch{Fetch: v}
	case *protocol.Chunk:
		m.Kind = &protocol.ClientMessage_Chunk{Chunk: v}
	case *protocol.Leave:
		m.Kind = &protocol.ClientMessage_Leave{Leave: v}
	}
	return s.Send(m)
}

// ask sends a request to join and returns the server's answer.
func (s *stream) ask(j *protocol.Join) (*protocol.JoinAnswer, error) {
	if err := s.send(j); err != nil {
		return nil, err
	}
	m, err := s.Receive()
	if err != nil {
		return nil, err
	}
	if m.GetAnswer() == nil {
		return nil, fmt.Errorf("%v is no answer", m)
	}
	return m.GetAnswer(), nil
}

// joinRequest is the request to join of a client that an honest client would send.
func (s *server) joinRequest(run string) *protocol.Join {
	s.t.Helper()
	text, err := json.Marshal(s.request(part{}))
	if err != nil {
		s.t.Fatal(err)
	}
	return &protocol.Join{Run: run, Instance: protocol.NewID(), Request: text}
}

// enter opens a stream and joins.
func (a *attacker) enter(ctx context.Context) (*stream, error) {
	s, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := s.ask(a.server.joinRequest(s.run))
	if err == nil && !answer.Ok {
		err = errors.New(answer.Reason)
	}
	return s, err
}

// frames is a connection on which an attacker writes HTTP/2 frames.
type frames struct {
	*tls.Conn
	*http2.Framer
	header *hpack.Encoder
	text   bytes.Buffer // of header
	next   uint32       // number of the next stream
}

// dial opens a TLS connection with a certificate from an address of this machine.
func (s *server) dial(conf *tls.Config, from string) (*tls.Conn, error) {
	conf = conf.Clone()
	conf.NextProtos = []string{"h2"}
	d := tls.Dialer{Config: conf, NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}}
	c, err := d.Dial("tcp", s.address)
	if err != nil {
		return nil, err
	}
	return c.(*tls.Conn), nil
}

// connect opens a connection with a certificate and reports a refusal. In TLS 1.3 the server refuses a certificate
// after the client's handshake, so connect waits for the server's first frame.
func (s *server) connect(conf *tls.Config) (*tls.Conn, error) {
	c, err := s.dial(conf, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() { c.Close() })
	if _, err = c.Write([]byte(http2.ClientPreface)); err == nil {
		err = http2.NewFramer(c, nil).WriteSettings()
	}
	if err != nil {
		return c, err
	}
	defer context.AfterFunc(busytest.Context(s.t), func() { c.Close() })()
	_, err = c.Read(make([]byte, 9))
	return c, err
}

// frames opens an HTTP/2 connection. Unless reads is false, a goroutine reads what the server sends.
func (s *server) frames(name string, reads bool) (*frames, error) {
	c, err := s.dial(s.tls(s.at("certs"), name), "127.0.0.1")
	if err != nil {
		return nil, err
	}
	f := &frames{Conn: c, Framer: http2.NewFramer(c, nil), next: 1}
	f.AllowIllegalWrites = true
	f.header = hpack.NewEncoder(&f.text)
	if _, err = c.Write([]byte(http2.ClientPreface)); err == nil {
		err = f.WriteSettings()
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	if reads {
		go func() {
			defer c.Close()
			for b := make([]byte, 64<<10); ; {
				if _, err := c.Read(b); err != nil {
					return
				}
			}
		}()
	}
	return f, nil
}

// request is the header of a call.
func (f *frames) request(procedure string, more ...string) []byte {
	f.text.Reset()
	pairs := append([]string{":method", "POST", ":scheme", "https", ":authority", "localhost", ":path", procedure,
		"content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(pairs); i += 2 {
		f.header.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return bytes.Clone(f.text.Bytes())
}

// begin writes the header of a call in a new stream.
func (f *frames) begin(procedure string, more ...string) (id uint32, err error) {
	id = f.next
	f.next += 2
	return id, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.request(procedure, more...),
		EndHeaders: true})
}

// cut waits until the server closes a connection, and reports whether it does.
func cut(t *testing.T, c net.Conn) bool {
	ctx := busytest.Context(t)
	untilClosed(ctx, c)
	return ctx.Err() == nil
}

// noPieces fails unless the server's folder has no tensors in transfer.
func (s *server) noPieces() {
	s.t.Helper()
	if list, err := filepath.Glob(s.at("out", "hub", "pieces", "*")); err != nil || len(list) > 0 {
		s.t.Errorf("%v, %v", list, err)
	}
}

// code fails unless a call failed with a code, and a text.
func code(t *testing.T, what string, err error, want connect.Code, text string) {
	t.Helper()
	if connect.CodeOf(err) != want || !bytes.Contains([]byte(fmt.Sprint(err)), []byte(text)) {
		t.Errorf("%s: %v; want %v with %q", what, err, want, text)
	}
}
