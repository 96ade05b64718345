package attack

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
)

// attacker is the holder of a certificate who speaks the protocol without the code of promptfed join.
type attacker struct {
	wire.FederationClient
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
	a.FederationClient = wire.NewFederationClient(&http.Client{Transport: a}, s.url(), connect.WithGRPC())
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

// session is a process of an attacker that speaks as a client.
type session struct {
	*attacker
	run, instance string
	seq           int64 // of its newest instruction
}

// open asks for the run.
func (a *attacker) open(ctx context.Context) (*session, error) {
	i, err := a.Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
	if err != nil {
		return nil, err
	}
	return &session{attacker: a, run: i.Run, instance: wire.NewID()}, nil
}

// ask sends a request to join, and returns why the server refuses it or asks to wait.
func (s *session) ask(ctx context.Context, j *wire.JoinCall) error {
	answer, err := s.Join(ctx, j)
	if err == nil && answer.Later != "" {
		err = errors.New(answer.Later)
	}
	return err
}

// next returns the next instruction, without its tensors.
func (s *session) next(ctx context.Context) (*wire.Instruction, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x, err := s.Next(ctx, &wire.Ask{Instance: s.instance, Seq: s.seq})
	if err != nil {
		return nil, err
	}
	if !x.Receive() {
		return nil, cmp.Or(x.Err(), io.EOF)
	}
	o := x.Msg().Instruction
	for x.Receive() {
	}
	s.seq = o.Seq
	return o, x.Err()
}

// reply sends a reply with parts of tensors.
func (s *session) reply(ctx context.Context, r *wire.Reply, parts ...[]byte) error {
	r.Instance = s.instance
	list := []*wire.Part{{Reply: r}}
	for _, b := range parts {
		list = append(list, &wire.Part{Data: b})
	}
	return s.send(ctx, list...)
}

// send makes a call that answers with any parts.
func (s *session) send(ctx context.Context, parts ...*wire.Part) error {
	x, err := s.Answer(ctx)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := x.Send(p); err != nil {
			break
		}
	}
	_, err = x.CloseAndReceive()
	return err
}

func (s *session) leave(ctx context.Context) error {
	_, err := s.Leave(ctx, wrapperspb.String(s.instance))
	return err
}

// joinRequest is the request to join of a client that an honest client would send.
func (s *server) joinRequest(run string) *wire.JoinCall {
	s.t.Helper()
	text, err := json.Marshal(s.request(part{}))
	if err != nil {
		s.t.Fatal(err)
	}
	return &wire.JoinCall{Run: run, Instance: wire.NewID(), Request: text}
}

// enter joins.
func (a *attacker) enter(ctx context.Context) (*session, error) {
	s, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	j := a.server.joinRequest(s.run)
	j.Instance = s.instance
	return s, s.ask(ctx, j)
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
