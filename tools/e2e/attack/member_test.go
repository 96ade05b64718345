package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"promptfed/federation/net/certs"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
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
		_, err := a.Status(ctx, &wire.StatusRequest{})
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

// A second process with the certificate of a client that is connected must wait, whatever it sends, and does not
// disturb the client.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	s := serve(t, 3)
	s.hold(1)
	s.joins(0, 1, 2)
	s.runs()
	ctx := busytest.Context(t)
	a := s.attacker("client-0")
	for range 3 {
		x, err := a.open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := x.Join(ctx, s.joinRequest(x.run))
		if err != nil || !strings.Contains(answer.GetLater(), "another process") {
			t.Errorf("%v, %v", answer, err)
		}
		_, err = x.next(ctx)
		code(t, "an instruction before joining", err, connect.CodeFailedPrecondition, "has not joined")
		err = x.reply(ctx, &wire.Reply{Id: wire.NewID(), Attempt: wire.NewID()})
		code(t, "a reply before joining", err, connect.CodeFailedPrecondition, "has not joined")
		if err := x.leave(ctx); err != nil { // which nobody notices
			t.Error(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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

// A key that somebody without a certificate showed first is the key of that client: another one with the same name
// and the token is refused, whatever it asks, and does not disturb the client.
func TestOtherKey(t *testing.T) {
	t.Parallel()
	s := serve(t, 3, "--token", "secret")
	s.hold(1)
	s.joins(0, 1, 2)
	s.runs()
	ctx := busytest.Context(t)
	a := s.stranger("client-1")
	for range 20 {
		_, err := a.Invite(ctx, &wire.InvitationRequest{Version: wire.Version})
		code(t, "an invitation", err, connect.CodePermissionDenied, "another key than before")
		_, err = a.Join(ctx, s.joinRequest(wire.NewID()))
		code(t, "a request to join", err, connect.CodePermissionDenied, "another key than before")
		_, err = (&session{attacker: a, instance: wire.NewID()}).next(ctx)
		code(t, "an instruction", err, connect.CodePermissionDenied, "another key than before")
	}
	s.hold(0)
	counted(t, s.ends(), 0, 1, 2)
	if n := strings.Count(s.log.String(), "msg=joined client=1"); n != 1 {
		t.Errorf("client 1 joined %d times", n)
	}
}

// A client that sends as much as it can, of everything that a member may send, is read more slowly. The run continues
// with the others at their pace, and nothing of it stays on disk.
func TestFlood(t *testing.T) {
	s := serve(t, 8, "--deadline", "1s") // the first three rounds wait for it
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	entered, sent := make(chan int), 0
	var attack sync.WaitGroup
	attack.Go(func() {
		for first := true; ctx.Err() == nil; first = false {
			x, err := s.attacker("client-0").enter(ctx)
			if first {
				close(entered)
			}
			if err != nil {
				continue
			}
			junk := make([]byte, 60<<10)
			for _, do := range []func() error{
				func() error {
					return x.reply(ctx, &wire.Reply{Id: wire.NewID(), Attempt: wire.NewID(), Scores: junk}, junk)
				},
				func() error {
					return x.reply(ctx, &wire.Reply{Id: wire.NewID(), Error: string(make([]byte, 60<<10))})
				},
				func() error { x.seq = 0; _, err := x.next(ctx); return err },
				func() error { x.send(ctx, &wire.Part{Data: junk}); return nil },
				func() error { x.ask(ctx, s.joinRequest(x.run)); return nil },
			} {
				if do() == nil {
					sent++
				}
			}
		}
	})
	<-entered
	s.background(part{client: 1})
	s.background(part{client: 2})
	records := s.ends()
	cancel()
	attack.Wait()
	t.Logf("%d messages were sent", sent)
	for _, r := range records {
		if !strings.Contains(fmt.Sprint(r.Clients), "1 2") {
			t.Errorf("round %d counts clients %v", r.Round, r.Clients)
		}
	}
	s.noPieces()
	if n := strings.Count(s.log.String(), "\n"); n > 200+sent/100 {
		t.Errorf("the log has %d lines about %d messages", n, sent)
	}
}
