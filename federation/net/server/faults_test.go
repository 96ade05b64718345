package server_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"promptfed/federation/engine"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/methodtest"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// Tensors above the limit of a message are sent in chunks, and the result has the same bytes.
func TestChunks(t *testing.T) {
	want, _ := simulated(t, nettest.FedPHA.Experiment(t), false)
	s := newSite(t, nettest.FedPHA.Experiment(t))
	s.run(func(set *server.Settings, _ *engine.Settings) { set.Limit = 100 })
	if !t.Failed() && s.learned() != want {
		t.Error("other bytes than in one process")
	}
	if !strings.Contains(s.log.String(), "joined") || strings.Contains(s.log.String(), "level=WARN") {
		t.Error("there are warnings")
	}
}

// mortal is a server that dies once, after it accepted the uploads of a round and before the checkpoint.
type mortal struct {
	*server.Server
	at    int
	lives *atomic.Int32
}

func (m mortal) Accept(round int, clients []int) error {
	if err := m.Server.Accept(round, clients); err != nil {
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

// late dies once, after the clients were tested with the accepted uploads and before the checkpoint.
type late struct{ mortal }

func (m late) Accept(round int, clients []int) error {
	return m.Server.Accept(round, clients)
}

func (m late) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	r, err := m.Server.Run(ctx, o)
	if err == nil && o.Kind == message.Test {
		err = m.dies(o.Round)
	}
	return r, err
}

// A server that dies between accepting uploads and its checkpoint continues the run. The clients roll back to the
// checkpoint with it.
func TestServerDies(t *testing.T) {
	t.Parallel() // it waits for connections
	scaffold := nettest.Method("promptfl", []string{"scaffold"}, nil)
	want, _ := simulated(t, scaffold.Experiment(t), false)
	for name, around := range map[string]func(m mortal) message.Cohort{
		"after accepting": func(m mortal) message.Cohort { return m },
		"after testing":   func(m mortal) message.Cohort { return late{m} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, scaffold.Experiment(t))
			ctx, cancel := context.WithCancel(busytest.Context(t))
			defer cancel()
			var lives atomic.Int32
			lives.Store(1)
			s.wrap = func(h *server.Server) message.Cohort { return around(mortal{h, 1, &lives}) }
			left := s.joinAll(ctx, cancel, 4)
			goldentest.WantError(t, s.serve(ctx, false), "dies")
			goldentest.NoError(t, s.serve(ctx, true))
			left()
			if s.learned() != want {
				t.Error("other bytes than in one process")
			}
		})
	}
}

// A client that joins after the first round gets the same result as a client that was away in that round.
func TestLateJoiner(t *testing.T) {
	t.Parallel() // it waits for connections
	away := func(round, client int) bool { return round == 0 && client == 3 }
	e := nettest.FedPHA.Experiment(t)
	e.Plan.Participation = 1
	r := enginetest.Run(t, e, engine.Settings{Wrap: methodtest.LoseReplies(away)})
	e = nettest.FedPHA.Experiment(t)
	e.Plan.Participation = 1
	s := newSite(t, e)
	s.joinLate()
	if s.learned() != nettest.BytesOf(t, r.Prompts) {
		t.Error("other bytes than in one process")
	}
}

// Methods with broadcasts per backbone have one for a client that joins later, too: it trains in every round from then
// on, and no reply is refused.
func TestLateJoinerOfAnotherBackbone(t *testing.T) {
	t.Parallel() // it waits for connections
	for _, m := range []nettest.Stack{
		nettest.Method("coop", []string{"fedproto"}, map[string]any{"tokens": 2}),
		nettest.Method("promptfl", []string{"ggtpc"}, map[string]any{"tokens": 2, "min_count": 1})} {
		t.Run(m.With[0], func(t *testing.T) {
			e := m.Experiment(t)
			e.Clients, e.Plan.Participation = methodtest.Clients(9, 5, 6, 3), 1
			s := newSite(t, e)
			if s.joinLate(); strings.Contains(s.log.String(), "no answer") {
				t.Error("a client did not answer")
			}
		})
	}
}

// joinLate runs the experiment with clients 0 to 2 from the start. Client 3 joins after the first round and is in every
// later one.
func (s *site) joinLate() {
	s.t.Helper()
	s.wait, s.set.Quorum = 3, 0.7
	ctx, cancel := context.WithCancel(busytest.Context(s.t))
	defer cancel()
	left := s.joinAll(ctx, cancel, 3)
	last := make(chan error, 1)
	err := s.serve(ctx, false, func(_ *server.Settings, run *engine.Settings) {
		run.OnRound = func(r record.Record) {
			if got := slices.Contains(r.Clients, 3); got != (r.Round > 0) {
				s.t.Errorf("round %d counts clients %v", r.Round, r.Clients)
			}
			if r.Round == 0 {
				go func() { last <- s.join(ctx, 3) }()
				busytest.Until(s.t, "joining", func() bool { return s.hub.Load().Participants()[3].Joined })
			}
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	left()
	if err := <-last; err != nil {
		s.t.Fatal(err)
	}
}

// leaver leaves once, in the middle of a training, and loses its work.
type leaver struct {
	netclient.LocalExecutor
	leave func()
	left  *atomic.Bool
}

func (l leaver) Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	if o.Kind == message.Train && o.Round == 1 && l.left.CompareAndSwap(false, true) {
		l.leave()
		<-ctx.Done()
		return message.Reply{}, nil, ctx.Err()
	}
	return l.LocalExecutor.Execute(ctx, o, s)
}

// hurried is a server with a deadline in the training of round 1. Clients may miss it on a busy machine; the round then
// ends after another one, with the same replies.
type hurried struct{ *server.Server }

func (h hurried) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	if o.Kind == message.Train && o.Round == 1 {
		h.SetDeadline(time.Second)
		defer h.SetDeadline(0)
	}
	return h.Server.Run(ctx, o)
}

// The server waits for a client that leaves in the middle of a round and comes back as another process, because the
// quorum needs it.
func TestClientComesBack(t *testing.T) {
	t.Parallel() // it waits for connections
	e := nettest.FedPHA.Experiment(t)
	e.Plan.Participation = 1
	want, _ := simulated(t, e, false)
	s := newSite(t, e)
	s.wrap = func(h *server.Server) message.Cohort { return hurried{h} }
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	first, leave := context.WithCancel(ctx)
	var left atomic.Bool
	s.part = func(client int, p netclient.LocalExecutor) netclient.Executor {
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
		back <- s.join(ctx, 2)
	}()
	goldentest.NoError(t, s.serve(ctx, false))
	wait()
	goldentest.NoError(t, errors.Join(<-back, <-other))
	if s.learned() != want {
		t.Error("other bytes than in one process")
	}
}

// A client of an earlier run learns that the server started another run.
func TestAnotherRun(t *testing.T) {
	t.Parallel() // it waits for connections
	s := newSite(t, nettest.FedPHA.Experiment(t))
	ctx, cancel := context.WithCancel(busytest.Context(t))
	defer cancel()
	first, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- s.serve(first, false) }()
	joined := make(chan error, 1)
	go func() { joined <- s.join(ctx, 0) }()
	s.waitFor(0)
	stop()
	<-served
	s.set.ID = wire.NewID()
	second, end := context.WithCancel(ctx)
	go func() { served <- s.serve(second, false) }()
	goldentest.WantError(t, <-joined, "another run")
	end()
	<-served
}

// slow is a client that misses the deadline of one training.
type slow struct{ netclient.LocalExecutor }

func (l slow) Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	r, next, err := l.LocalExecutor.Execute(ctx, o, s)
	if o.Kind == message.Train && o.Round == 1 {
		<-ctx.Done() // the next instruction
	}
	return r, next, err
}

// A round ends at the deadline with the replies so far, if there is a quorum. The work of a slow client does not count,
// and the client is tested with its state before.
func TestDeadline(t *testing.T) {
	t.Parallel() // it waits for the deadline
	e := nettest.FedPHA.Experiment(t)
	e.Plan.Participation = 1
	r := enginetest.Run(t, e, engine.Settings{Wrap: methodtest.LoseReplies(func(round, client int) bool {
		return round == 1 && client == 1
	})})
	s := newSite(t, e)
	s.set.Quorum = 0.75 // all but one
	s.wrap = func(h *server.Server) message.Cohort { return hurried{h} }
	s.part = func(client int, p netclient.LocalExecutor) netclient.Executor {
		if client == 1 {
			return slow{p}
		}
		return p
	}
	s.run()
	if s.learned() != nettest.BytesOf(t, r.Prompts) || s.records() != nettest.WithoutTimes(t, r.Records) {
		t.Error("other bytes or records than in one process without that upload")
	}
}
