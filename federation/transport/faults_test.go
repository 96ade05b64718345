package transport_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine"
	"promptfed/federation/transport"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// Tensors above the message limit travel as objects, and change nothing.
func TestObjects(t *testing.T) {
	want, _ := simulated(t, fedpha.toy(t), false)
	s := newSite(t, fedpha.toy(t))
	s.run(func(set *transport.Settings, _ *engine.Settings) { set.Limit = 100 })
	if !t.Failed() && s.learned() != want {
		t.Error("other bytes than in one process")
	}
	if !strings.Contains(s.log.String(), "joined") || strings.Contains(s.log.String(), "level=WARN") {
		t.Error("something went wrong on the way")
	}
}

// mortal is a hub whose server dies right after it told the engine that uploads count, before the checkpoint says so.
type mortal struct {
	*transport.Hub
	at    int
	lives *atomic.Int32
}

func (m mortal) Accept(round int, clients []int) error {
	if err := m.Hub.Accept(round, clients); err != nil {
		return err
	}
	return m.dies(round)
}

func (m mortal) dies(round int) error {
	if round == m.at && m.lives.Add(-1) >= 0 {
		return errors.New("the server dies")
	}
	return nil
}

// late dies after clients were tested with what counts, still before the checkpoint.
type late struct{ mortal }

func (m late) Accept(round int, clients []int) error { return m.Hub.Accept(round, clients) }

func (m late) Run(ctx context.Context, o engine.Order) ([]engine.Reply, error) {
	r, err := m.Hub.Run(ctx, o)
	if err == nil && o.Kind == engine.Test {
		err = m.dies(o.Round)
	}
	return r, err
}

// A server that dies between accepting uploads and its checkpoint, with its NATS server, goes on: clients go back with it to
// what the checkpoint counts.
func TestServerDies(t *testing.T) {
	scaffold := stack{"promptfl", []string{"scaffold"}, nil}
	want, _ := simulated(t, scaffold.toy(t), false)
	for name, around := range map[string]func(m mortal) engine.Remote{
		"after accepting": func(m mortal) engine.Remote { return m },
		"after testing":   func(m mortal) engine.Remote { return late{m} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, scaffold.toy(t))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var lives atomic.Int32
			lives.Store(1)
			s.remote = func(h *transport.Hub) engine.Remote { return around(mortal{h, 1, &lives}) }
			left := s.joinAll(ctx, cancel, 4)
			if err := s.serve(ctx, false); err == nil || !strings.Contains(err.Error(), "dies") {
				t.Fatal(err)
			}
			s.nats.Close()
			s.start()
			if err := s.serve(ctx, true); err != nil {
				t.Fatal(err)
			}
			left()
			if s.learned() != want {
				t.Error("other bytes than in one process")
			}
		})
	}
}

// A client that joins after the first round has what a client has that was away in it.
func TestLateJoiner(t *testing.T) {
	away := func(round, client int) bool { return round == 0 && client == 3 }
	e := fedpha.toy(t)
	e.Plan.Participation = 1
	r, err := engine.Run(context.Background(), e, engine.Settings{Lost: away})
	if err != nil {
		t.Fatal(err)
	}
	e = fedpha.toy(t)
	e.Plan.Participation = 1
	s := newSite(t, e)
	s.wait, s.set.Quorum = 3, 0.7
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	left := s.joinAll(ctx, cancel, 3)
	last := make(chan error, 1)
	err = s.serve(ctx, false, func(_ *transport.Settings, run *engine.Settings) {
		run.OnRound = func(r engine.Record) {
			if r.Round > 0 {
				return
			}
			if slices.Contains(r.Clients, 3) {
				t.Error("client 3 trained before it joined")
			}
			go func() { last <- s.join(ctx, 3) }()
			eventually(t, "joining", func() bool { return s.hub.Load().Members()[3].Joined })
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	left()
	if err := <-last; err != nil {
		t.Fatal(err)
	}
	if s.learned() != bytesOf(t, r.Prompts) {
		t.Error("other bytes than in one process")
	}
}

// leaver goes away in the middle of its first training and forgets what it was doing, once.
type leaver struct {
	transport.Local
	leave func()
	left  *atomic.Bool
}

func (l leaver) Answer(ctx context.Context, o engine.Order, s engine.State) (engine.Reply, *engine.State, error) {
	if o.Kind == engine.Train && o.Round == 1 && l.left.CompareAndSwap(false, true) {
		l.leave()
		<-ctx.Done()
		return engine.Reply{}, nil, ctx.Err()
	}
	return l.Local.Answer(ctx, o, s)
}

// A client that goes in the middle of a round and comes back as another process is waited for, as the quorum asks.
func TestClientComesBack(t *testing.T) {
	e := fedpha.toy(t)
	e.Plan.Participation = 1
	want, _ := simulated(t, e, false)
	s := newSite(t, e)
	s.set.Deadline = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	first, leave := context.WithCancel(ctx)
	var left atomic.Bool
	s.part = func(client int, p transport.Local) transport.Part {
		if client == 2 {
			return leaver{p, leave, &left}
		}
		return p
	}
	wait := s.joinAll(ctx, cancel, 2)
	back, other := make(chan error, 1), make(chan error, 1)
	go func() { other <- s.join(ctx, 3) }()
	go func() {
		if err := s.join(first, 2); err == nil {
			t.Error("the client did not leave")
		}
		time.Sleep(100 * time.Millisecond)
		back <- s.join(ctx, 2)
	}()
	if err := s.serve(ctx, false); err != nil {
		t.Fatal(err)
	}
	wait()
	if err := errors.Join(<-back, <-other); err != nil {
		t.Fatal(err)
	}
	if s.learned() != want {
		t.Error("other bytes than in one process")
	}
}

// Every reply comes twice more, once whole and once damaged: it counts once.
func TestDuplicatesAndDamage(t *testing.T) {
	want, records := simulated(t, fedpha.toy(t), false)
	s := newSite(t, fedpha.toy(t))
	echo := nats.Header{"Echo": []string{"1"}}
	n := 0
	_, err := s.nats.Conn().Subscribe("pf.toy.reply.*", func(m *nats.Msg) {
		if m.Header.Get("Echo") != "" {
			return
		}
		n++
		bent := slices.Clone(m.Data)
		bent[len(bent)-1-n%64] ^= 0x40
		for _, b := range [][]byte{bent[:len(bent)/2], m.Data, bent} {
			s.nats.Conn().PublishMsg(&nats.Msg{Subject: m.Subject, Header: echo, Data: b})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.run()
	if s.learned() != want || s.records() != records {
		t.Error("other bytes or records than in one process")
	}
	if got := s.hub.Load().Totals(); got.Late == 0 || got.Refused == 0 {
		t.Errorf("%+v: nothing was dropped", got)
	}
}

// hostile is a client that uploads what it should not.
type hostile struct {
	transport.Local
	kind  engine.Kind
	spoil func(r *engine.Reply)
}

func (h hostile) Answer(ctx context.Context, o engine.Order, s engine.State) (engine.Reply, *engine.State, error) {
	r, next, err := h.Local.Answer(ctx, o, s)
	if err == nil && o.Kind == h.kind {
		h.spoil(&r)
	}
	return r, next, err
}

// What a hostile client uploads is refused and logged; the others learn what they would without it.
func TestHostileUploads(t *testing.T) {
	e := fedpha.toy(t)
	e.Plan.Participation, e.Plan.Rounds = 1, 2
	r, err := engine.Run(context.Background(), e, engine.Settings{Lost: func(_, client int) bool { return client == 1 }})
	if err != nil {
		t.Fatal(err)
	}
	for say, spoil := range map[string]func(r *engine.Reply){
		"holds NaN":                func(r *engine.Reply) { r.Upload.Shared["global"].Data[3] = float32(math.NaN()) },
		"moved the parameters":     func(r *engine.Reply) { r.Upload.Shared["global"].Data[3] = 1e9 },
		"for parameter global":     func(r *engine.Reply) { r.Upload.Shared["global"].Shape = []int{r.Upload.Shared["global"].Len()} },
		"another experiment":       func(r *engine.Reply) { r.Upload.Shared["more"] = r.Upload.Shared["global"] },
		"a name has letters":       func(r *engine.Reply) { r.Upload.Shared["../../x"] = r.Upload.Shared["global"] },
		"it must count 1 or more":  func(r *engine.Reply) { r.Upload.N = 0 },
		"another type of numbers":  func(r *engine.Reply) { g := r.Upload.Shared["global"]; g.Ints, g.Data = make([]int64, g.Len()), nil },
		"the client joined with 5": func(r *engine.Reply) { r.Upload.N = 1000 },
	} {
		t.Run(say, func(t *testing.T) {
			s := newSite(t, e)
			s.set.Quorum, s.set.MaxNorm, s.set.Deadline = 0.7, 1000, 3*time.Second
			s.part = func(client int, p transport.Local) transport.Part {
				if client == 1 {
					return hostile{p, engine.Train, spoil}
				}
				return p
			}
			s.run()
			got, _, err := safetensors.ReadFile(filepath.Join(s.dir, engine.PromptsFile))
			if err != nil {
				t.Fatal(err)
			}
			if bytesOf(t, got.Under("shared")) != bytesOf(t, r.Prompts.Under("shared")) {
				t.Error("the others learned something else")
			}
			if !strings.Contains(s.log.String(), say) {
				t.Errorf("nothing was logged about %q", say)
			}
		})
	}
}

// Uploads whose extras the method cannot do with are left out, in training and in surveys.
func TestHostileExtras(t *testing.T) {
	for _, c := range []struct {
		of    stack
		kind  engine.Kind
		spoil func(r *engine.Reply)
	}{
		{stack{"promptfl", []string{"scaffold"}, nil}, engine.Train, func(r *engine.Reply) { clear(r.Upload.Extra) }},
		{stack{"promptfl", []string{"scaffold"}, nil}, engine.Train, func(r *engine.Reply) {
			for name := range r.Upload.Extra {
				r.Upload.Extra[name] = tensor.New(1)
			}
		}},
		{stack{"promptfl", []string{"fedproto"}, nil}, engine.Train, func(r *engine.Reply) { clear(r.Upload.Extra) }},
		{stack{"promptfl", []string{"ggtpc"}, nil}, engine.Ask, func(r *engine.Reply) { clear(r.Upload.Extra) }},
	} {
		t.Run(fmt.Sprint(c.of.with, c.kind), func(t *testing.T) {
			e := c.of.toy(t)
			e.Plan.Participation, e.Plan.Rounds = 1, 2
			s := newSite(t, e)
			s.part = func(client int, p transport.Local) transport.Part {
				if client == 1 {
					return hostile{p, c.kind, c.spoil}
				}
				return p
			}
			s.run()
			if !strings.Contains(s.log.String(), `msg="an upload is left out" round=0 client=1`) {
				t.Error("nothing was logged")
			}
			if c.kind == engine.Ask {
				return // its training counts
			}
			r, err := engine.Run(context.Background(), e, engine.Settings{Lost: func(_, client int) bool { return client == 1 }})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := safetensors.ReadFile(filepath.Join(s.dir, engine.PromptsFile))
			if err != nil || bytesOf(t, got.Under("shared")) != bytesOf(t, r.Prompts.Under("shared")) {
				t.Errorf("%v: the others learned something else", err)
			}
		})
	}
}

// A client is refused with the reason when it would train something else, or in the name of another that is there.
func TestRefusedToJoin(t *testing.T) {
	s := newSite(t, stack{"promptfl", nil, nil}.toy(t))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, false) }()
	joined := make(chan error, 1)
	go func() { joined <- s.join(ctx, 0) }()
	eventually(t, "joining", func() bool { h := s.hub.Load(); return h != nil && h.Members()[0].Joined })
	for say, change := range map[string]func(*transport.Card, *transport.Local){
		"options: the server has":     func(c *transport.Card, _ *transport.Local) { c.Terms.Options = "{}" },
		"classes: the server has":     func(c *transport.Card, _ *transport.Local) { c.Terms.Classes = c.Terms.Classes[1:] },
		"it cannot be averaged":       func(c *transport.Card, _ *transport.Local) { c.Member.Task.Width++ },
		"other weights":               func(c *transport.Card, _ *transport.Local) { c.Backbone = "other" },
		"sizes are no backbone's":     func(c *transport.Card, _ *transport.Local) { c.Member.Task.Width = 1 << 30 },
		"the backbone's name \"\\n\"": func(c *transport.Card, _ *transport.Local) { c.Member.Task.Backbone = "\n" },
	} {
		err := s.join(ctx, 2, change) // as client 0's, the backbone of client 2
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: the client says %v", say, err)
		}
		if !strings.Contains(s.log.String(), strings.NewReplacer(`"`, `\"`, `\n`, `\\n`).Replace(say)) {
			t.Errorf("the server does not log %q", say)
		}
	}
	soon, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if err := s.join(soon, 0); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(s.log.String(), "another process is this client") {
		t.Errorf("a second client 0: %v", err)
	}
	if err := s.join(ctx, 4); err == nil || !strings.Contains(err.Error(), "clients 0 to 3") {
		t.Error(err)
	}
	cancel()
	<-served
	<-joined
}

// A client of the embedded server can do nothing on the subjects of another.
func TestPermissions(t *testing.T) {
	s := newSite(t, fedpha.toy(t))
	denied := make(chan error, 16)
	nc, err := nats.Connect(s.url, nats.UserInfo(transport.UserOf(1), ""), nats.CustomInboxPrefix(transport.InboxOf(1)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{"pf.toy.reply.2", "pf.toy.order.1", "pf.toy.order.2", "pf.toy.join.2", "pf.toy.beat.2", "pf.toy.status",
		"$JS.API.CONSUMER.MSG.NEXT.pf-toy-orders.client-2", "$JS.API.STREAM.DELETE.pf-toy-orders", "$JS.API.STREAM.MSG.GET.pf-toy-orders",
		"$JS.API.STREAM.PURGE.pf-toy-replies", "$O.pf-toy-objects-2.C.x", "$KV.pf-toy-members.client-1", "_INBOX_client-2.x", "$JS.API.STREAM.LIST"} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, denied, fmt.Sprintf(`Publish to %q`, subject))
	}
	for _, subject := range []string{">", "pf.toy.order.1", "pf.toy.reply.*", "_INBOX_client-2.>", "_INBOX.>"} {
		sub, err := nc.Subscribe(subject, func(*nats.Msg) {})
		if err != nil {
			t.Fatal(err)
		}
		expectDenied(t, denied, fmt.Sprintf(`Subscription to %q`, subject))
		sub.Unsubscribe()
	}
	for _, user := range []string{"", "server", "client-", "client--1", "client-01", "client-1x", "promptfed-server"} {
		if c, err := nats.Connect(s.url, nats.UserInfo(user, "")); err == nil {
			c.Close()
			t.Errorf("user %q was let in", user)
		}
	}
}

func expectDenied(t *testing.T, denied chan error, what string) {
	t.Helper()
	select {
	case err := <-denied:
		if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("%s is allowed", what)
	}
}
