package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"promptfed/federation/engine/message"
	"promptfed/federation/net/authority"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// Once most clients agreed, a client is refused with the reason if it would train something else. A second process of a
// connected client waits.
func TestRefusedToJoin(t *testing.T) {
	t.Parallel() // it waits
	s := newSite(t, nettest.Method("promptfl", nil, nil).Experiment(t))
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	s.wait = 2
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	joined := make(chan error, 2)
	for k := range 2 {
		go func() { joined <- s.join(ctx, k) }()
	}
	s.waitFor(0)
	s.waitFor(1)
	for say, change := range map[string]func(*wire.JoinRequest){
		"options: the server has": func(c *wire.JoinRequest) { c.RunSpec.Options = "{}" },
		"classes: the server has": func(c *wire.JoinRequest) {
			c.RunSpec.Classes = c.RunSpec.Classes[1:]
		},
		"it cannot be averaged":             func(c *wire.JoinRequest) { c.Participant.Task.Width++ },
		"other weights":                     func(c *wire.JoinRequest) { c.Backbone = "other" },
		"the backbone has impossible sizes": func(c *wire.JoinRequest) { c.Participant.Task.Width = 1 << 30 },
		"the backbone's name \"\\n\"":       func(c *wire.JoinRequest) { c.Participant.Task.Backbone = "\n" },
	} {
		// client 2 has the backbone of client 0
		err := s.join(ctx, 2, func(c *wire.JoinRequest, _ *netclient.LocalExecutor) { change(c) })
		goldentest.WantError(t, err, say)
		if !strings.Contains(s.log.String(), strings.NewReplacer(`"`, `\"`, `\n`, `\\n`).Replace(say)) {
			t.Errorf("the server does not log %q", say)
		}
	}
	if !strings.Contains(s.log.String(), "level=WARN") {
		t.Error("refusals are no warnings")
	}
	waits, stop := context.WithCancel(ctx)
	second := make(chan error, 1)
	go func() { second <- s.join(waits, 0) }()
	busytest.Until(t, "a second client 0 that waits", func() bool {
		return len(second) > 0 || strings.Contains(s.log.String(), "another process runs as this client")
	})
	stop()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("a second client 0: %v", err)
	}
	goldentest.WantError(t, s.join(ctx, 4), "clients 0 to 3")
	cancel()
	<-served
	<-joined
	<-joined
}

// A second process of a client waits until the first one has left, and then takes part.
func TestReplacedProcess(t *testing.T) {
	t.Parallel() // it waits
	e := nettest.Method("promptfl", nil, nil).Experiment(t)
	e.Plan.Participation = 1
	want, _ := simulated(t, e, false)
	s := newSite(t, e)
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	first, leave := context.WithCancel(ctx)
	gone, replaced := make(chan error, 1), make(chan error, 1)
	go func() { gone <- s.join(first, 3) }()
	s.waitFor(3)
	go func() { replaced <- s.join(ctx, 3) }()
	busytest.Until(t, "waiting", func() bool {
		return strings.Contains(s.log.String(), "another process runs as this client: client 3 is connected")
	})
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	left := s.joinAll(ctx, cancel, 3)
	goldentest.NoError(t, <-served)
	left()
	if err := <-replaced; err != nil || s.learned() != want {
		t.Errorf("%v, or other bytes than in one process", err)
	}
}

// A client whose connection ends while the server makes it wait, between its admission and the answer, is not
// connected: its next process can join. Long texts cost so much that the second request waits for its answer.
func TestConnectionEndsBeforeTheAnswer(t *testing.T) {
	t.Parallel() // it waits
	r := newRoom(t, 1)
	link := &nettest.SlowLink{To: strings.TrimPrefix(r.h.URL(), "https://"), Rate: math.MaxInt32}
	url := "https://" + link.Start(t)
	long := func() *wire.JoinCall {
		return r.changed(func(c *wire.JoinRequest) {
			c.RunSpec.Classes = slices.Clone(c.RunSpec.Classes)
			for i := range 4000 {
				c.RunSpec.Classes = append(c.RunSpec.Classes, fmt.Sprintf("%0480d", i))
			}
		})
	}
	for n := 1; n <= 2; n++ {
		r.call["client-0"] = nettest.Dial(t, url, "client-0", r.ca.Identity("client-0"), 64<<10)
		ended := make(chan error, 1)
		go func() { ended <- r.process(0).joins(long()) }()
		busytest.Until(t, fmt.Sprint(n, " admissions"), func() bool {
			return strings.Count(r.logs.String(), "msg=joined") == n
		})
		link.Cut()
		busytest.Until(t, "the end of the process", func() bool { return r.h.Status().Clients[0].Doing == "" })
		<-ended
	}
}

// Without certificates a client keeps the key with which it joined. A call with another key is refused. Whoever asks
// for a client's invitation or instruction before it joins does not keep it out.
func TestOtherKey(t *testing.T) {
	t.Parallel() // it waits for connections
	r := newRoom(t, 1, func(s *server.Settings) { s.Identity = certs.Identity{} })
	var who certs.Identity
	key := func() *process {
		var err error
		if who, err = (certs.Identity{}).WithKey(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		r.call["client-0"] = nettest.Dial(t, r.h.URL(), "client-0", who, 64<<10)
		return r.process(0)
	}
	first, second := key(), key()
	_, err := second.Invite(busytest.Context(t), &wire.InvitationRequest{Version: wire.Version})
	if _, _, e := second.ask(busytest.Context(t), ""); err != nil || e == nil {
		t.Error(err, e)
	}
	goldentest.NoError(t, first.joins(r.joinMessage()))
	second.instance = first.instance
	_, _, err = second.ask(busytest.Context(t), "")
	for _, err := range []error{err, second.joins(r.joinMessage()), second.leave(), second.answer(&wire.Reply{})} {
		goldentest.WantError(t, err, "another key than before")
	}
	ended := make(chan string, 5)
	for range 5 { // more than may be open
		r.half(t.Context(), who, wire.FederationJoinProcedure, ended)
	}
	<-ended
	if err := first.joins(r.joinMessage()); err != nil {
		t.Errorf("open calls with another key keep the client out: %v", err)
	}
}

// The calls of a client whose certificate is revoked end during its training, and the client with the reason. Its
// round goes on without it, and it cannot come back.
func TestRevokedClient(t *testing.T) {
	t.Parallel() // it waits
	s, dir := certifiedSite(t)
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	s.set.Quorum = 0.5
	over := make(chan struct{})
	s.part = func(client int, p netclient.LocalExecutor) netclient.Executor {
		if client == 1 {
			return training{p, func(ctx context.Context) {
				revoke(t, dir, "client-1")
				<-ctx.Done()
			}}
		}
		return training{p, func(context.Context) { <-over }} // the round cannot end before
	}
	served, outcome := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	go func() {
		outcome <- s.join(ctx, 1)
		close(over)
	}()
	for _, k := range []int{0, 2, 3} {
		go s.join(ctx, k)
	}
	if err := <-outcome; !errors.Is(err, netclient.ErrRefused) || !strings.Contains(err.Error(), "client-1") {
		t.Errorf("the client says %v", err)
	}
	goldentest.NoError(t, <-served)
	if !strings.Contains(s.log.String(), "the certificate of client-1 is revoked") {
		t.Error("the log does not name the revoked certificate")
	}
}

// A client leaves a server whose certificate is revoked, and does not come back to it.
func TestRevokedServer(t *testing.T) {
	t.Parallel() // it waits
	s, dir := certifiedSite(t)
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	served, outcome := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	go func() { outcome <- s.join(ctx, 1) }()
	s.waitFor(1)
	revoke(t, dir, certs.ServerName)
	goldentest.WantError(t, <-outcome, "the certificate of server is revoked")
	if n := strings.Count(s.log.String(), "msg=joined"); n > 2 { // one line of each side
		t.Errorf("the client joined again:\n%s", s.log)
	}
	cancel()
	<-served
}

// certifiedSite returns a site with the certificates of a folder.
func certifiedSite(t *testing.T) (s *site, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certs")
	if _, err := authority.Make(dir, dir+"-ca", 4, []string{"127.0.0.1"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	identity := func(name string) certs.Identity {
		who, err := authority.Identity(dir, name)
		if err != nil {
			t.Error(err)
		}
		return who
	}
	e := nettest.Method("promptfl", nil, nil).Experiment(t)
	e.Plan.Participation = 1
	s = newSite(t, e)
	s.set.Identity = identity(certs.ServerName)
	s.who = func(client int) certs.Identity { return identity(certs.UserOf(client)) }
	return s, dir
}

// waitFor waits until a client has joined.
func (s *site) waitFor(client int) {
	s.t.Helper()
	busytest.Until(s.t, "joining", func() bool {
		h := s.hub.Load()
		return h != nil && h.Participants()[client].Joined
	})
}

func revoke(t *testing.T, dir, name string) {
	t.Helper()
	if err := authority.Replace(dir, dir+"-ca", []string{name}, nil, nil, time.Hour,
		func(string, ...any) {}); err != nil {
		t.Error(err)
	}
}

// training is a client that does something before each training.
type training struct {
	netclient.LocalExecutor
	do func(ctx context.Context)
}

func (e training) Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	if o.Kind == message.Train {
		e.do(ctx)
	}
	return e.LocalExecutor.Execute(ctx, o, s)
}

// A server that ends a connection at once, as one does that is killed then, is waited for.
func TestClientWaitsForAServerThatDied(t *testing.T) {
	t.Parallel() // it waits
	l, err := net.Listen("tcp", "127.0.0.1:0")
	goldentest.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	go func() {
		for range 2 {
			if c, err := l.Accept(); err == nil {
				c.Close()
			}
		}
		cancel()
	}()
	who, err := certs.Identity{}.WithKey("")
	goldentest.NoError(t, err)
	link := &netclient.Link{URL: "https://" + l.Addr().String(), Name: "client-0", Identity: who,
		Log: (&nettest.Logs{}).Logger()}
	if _, err := netclient.FetchInvitation(ctx, link, 1<<20); !errors.Is(err, context.Canceled) {
		t.Errorf("the client did not wait: %v", err)
	}
}

// Addresses of other kinds are refused with the address to give.
func TestCheckURL(t *testing.T) {
	for url, say := range map[string]string{
		"https://host:8443":  "",
		"https://host:8443/": "",
		"https://host":       "",
		"nats://host:4222":   "expected https://HOST:PORT",
		"http://host:8443":   "expected https://HOST:PORT",
		"https://host/path":  "expected https://HOST:PORT",
		"host:8443":          "expected https://HOST:PORT",
		"https://":           "expected https://HOST:PORT",
		"":                   "expected https://HOST:PORT",
		"\x7f":               "expected https://HOST:PORT",
	} {
		err := netclient.CheckURL(url)
		if (err == nil) != (say == "") || err != nil && !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// A client of another version learns the server's version; it then refuses the server in its own words.
func TestVersions(t *testing.T) {
	r := newRoom(t, 1)
	v, err := r.dial("client-0").Invite(busytest.Context(t), &wire.InvitationRequest{Version: 9})
	if err != nil || v.Version != wire.Version || wire.Version != 11 || v.Config != nil {
		t.Errorf("%v, %v", v, err)
	}
}
