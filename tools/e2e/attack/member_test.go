package attack

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// A client with a certificate is the client of that certificate and nobody else: it cannot read the status, and its
// messages name no other client. The certificate for the status reads the status and does nothing else. A client that
// the run does not have gets no invitation.
func TestNames(t *testing.T) {
	t.Parallel()
	certificates := t.TempDir() + "/certs"
	call(t, "certs", certificates, "--clients", "4")
	s := serveWith(t, certificates, 3)
	ctx := busytest.Context(t)
	refused := func(name, text string, call func(a *attacker) error) {
		t.Helper()
		code(t, name, call(s.attacker(name)), connect.CodePermissionDenied, text)
	}
	status := func(a *attacker) error {
		_, err := a.Status(ctx, &emptypb.Empty{})
		return err
	}
	invite := func(a *attacker) error {
		_, err := a.Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
		return err
	}
	join := func(a *attacker) error {
		_, err := a.Join(ctx, s.joinRequest(wire.NewID()))
		return err
	}
	ask := func(a *attacker) error {
		_, err := (&session{attacker: a, instance: wire.NewID()}).next(ctx)
		return err
	}
	answer := func(a *attacker) error {
		return (&session{attacker: a, instance: wire.NewID()}).reply(ctx, &wire.Reply{})
	}
	s.hold(1)
	s.joins(0, 1, 2)
	s.runs()
	refused("client-0", `"client-0" may not ask for the status`, status)
	refused("client-3", `"client-3" may not ask for the status`, status)
	for _, call := range []func(*attacker) error{invite, join, ask, answer} {
		refused("status", `"status" is not a client`, call)
		refused("client-3", "the run has clients 0 to 2", call)
	}
	if err := status(s.attacker("status")); err != nil {
		t.Error(err)
	}
	s.hold(0)
	counted(t, s.ends(), 0, 1, 2)
}

// Nobody with the certificate of a client, of the status user or of a worker, or with one of another authority, is the
// server of a run: the client ends with one line and sends nothing.
func TestImpostor(t *testing.T) {
	t.Parallel()
	s := openTrial(t)
	call(t, "certs", s.at("other"), "--clients", "1")
	s.issue("client-2", time.Now().Add(time.Hour)) // also valid for a server with this address
	for _, c := range []struct{ folder, name, say string }{
		{"certs", certs.UserOf(1), "is for other names"},
		{"certs", certs.UserOf(2), `belongs to "client-2", not to server`},
		{"certs", certs.StatusUser, "is for other names"},
		{"certs", certs.WorkerUser, "is for other names"},
		{"other", certs.ServerName, "not by the authority of --tls"},
	} {
		conf := s.tls(s.at(c.folder), c.name)
		conf.NextProtos, conf.ClientAuth = []string{"h2"}, tls.RequireAnyClientCert
		l, err := tls.Listen("tcp", s.address, conf)
		goldentest.NoError(t, err)
		heard := make(chan int64, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, conn)
			conn.Close()
			heard <- n
		}()
		line := refuses(t, "join", s.url(), "--client", "0", "--config", s.at("attack.yaml"), "--partition", "--state",
			s.at("client-0"), "--tls", s.at("certs"))
		l.Close()
		if !strings.Contains(line, c.say) {
			t.Errorf("%s of %s: %s", c.name, c.folder, line)
		}
		select {
		case n := <-heard:
			if n > 0 {
				t.Errorf("%s of %s got %d bytes", c.name, c.folder, n)
			}
		case <-busytest.Hung(t):
			t.Fatalf("%s of %s: no connection", c.name, c.folder)
		}
	}
}

// Bytes that somebody between client and server records are worth nothing on another connection: the server answers a
// replay neither as the client nor at all.
func TestReplayedBytes(t *testing.T) {
	t.Parallel()
	s := serve(t, 3)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	goldentest.NoError(t, err)
	defer front.Close()
	recorded := make(chan []byte, 1)
	go func() {
		conn, err := front.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		back, err := net.Dial("tcp", s.address)
		if err != nil {
			return
		}
		go io.Copy(conn, back)
		var text strings.Builder
		io.Copy(io.MultiWriter(back, &text), conn)
		back.Close()
		recorded <- []byte(text.String())
	}()
	through := &server{t: t, dir: s.dir, address: front.Addr().String(), terms: s.terms}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- through.join(ctx, part{client: 0}) }()
	s.says("msg=joined client=0")
	cancel()
	<-done
	text := <-recorded
	conn, err := net.Dial("tcp", s.address)
	goldentest.NoError(t, err)
	defer conn.Close()
	conn.Write(text)
	if !cut(t, conn) || len(text) < 1000 {
		t.Errorf("the server keeps a connection with %d recorded bytes", len(text))
	}
	s.joins(0, 1, 2)
	counted(t, s.ends(), 0, 1, 2)
	if n := strings.Count(s.log.String(), "msg=joined client=0"); n != 2 {
		t.Errorf("client 0 joined %d times", n)
	}
}
