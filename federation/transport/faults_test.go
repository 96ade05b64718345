package transport_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"promptfed/federation/engine"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/methodtest"
	"promptfed/federation/transport"
	"promptfed/federation/transport/subjects"
	"promptfed/federation/transport/transporttest"
)

// Tensors above the message limit travel in pieces, and change nothing.
func TestPieces(t *testing.T) {
	want, _ := simulated(t, transporttest.FedPHA.Experiment(t), false)
	s := newSite(t, transporttest.FedPHA.Experiment(t))
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
	*transport.Server
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

// late dies after clients were tested with what counts, still before the checkpoint.
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

// A server that dies between accepting uploads and its checkpoint, with its NATS server, goes on: clients go back with
// it to what the checkpoint counts.
func TestServerDies(t *testing.T) {
	scaffold := transporttest.Method("promptfl", []string{"scaffold"}, nil)
	want, _ := simulated(t, scaffold.Experiment(t), false)
	for name, around := range map[string]func(m mortal) message.Remote{
		"after accepting": func(m mortal) message.Remote { return m },
		"after testing":   func(m mortal) message.Remote { return late{m} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, scaffold.Experiment(t))
			ctx, cancel := context.WithCancel(transporttest.TestContext(t))
			defer cancel()
			var lives atomic.Int32
			lives.Store(1)
			s.remote = func(h *transport.Server) message.Remote { return around(mortal{h, 1, &lives}) }
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
	e := transporttest.FedPHA.Experiment(t)
	e.Plan.Participation = 1
	r, err := engine.Run(context.Background(), e, engine.Settings{Wrap: methodtest.LoseReplies(away)})
	if err != nil {
		t.Fatal(err)
	}
	e = transporttest.FedPHA.Experiment(t)
	e.Plan.Participation = 1
	s := newSite(t, e)
	s.wait, s.set.Quorum = 3, 0.7
	ctx, cancel := context.WithCancel(transporttest.TestContext(t))
	defer cancel()
	left := s.joinAll(ctx, cancel, 3)
	last := make(chan error, 1)
	err = s.serve(ctx, false, func(_ *transport.Settings, run *engine.Settings) {
		run.OnRound = func(r record.Record) {
			if r.Round > 0 {
				return
			}
			if slices.Contains(r.Clients, 3) {
				t.Error("client 3 trained before it joined")
			}
			go func() { last <- s.join(ctx, 3) }()
			transporttest.Eventually(t, "joining", func() bool { return s.hub.Load().Participants()[3].Joined })
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	left()
	if err := <-last; err != nil {
		t.Fatal(err)
	}
	if s.learned() != transporttest.BytesOf(t, r.Prompts) {
		t.Error("other bytes than in one process")
	}
}

// Methods that send a client what belongs to its backbone have it for one that joins later, too: it trains in every
// round from then on, and no client's answer is refused.
func TestLateJoinerOfAnotherBackbone(t *testing.T) {
	for _, m := range []transporttest.Stack{
		transporttest.Method("coop", []string{"fedproto"}, map[string]any{"tokens": 2}),
		transporttest.Method("promptfl", []string{"ggtpc"}, map[string]any{"tokens": 2, "min_count": 1})} {
		t.Run(m.With[0], func(t *testing.T) {
			e := m.Experiment(t)
			e.Clients, e.Plan.Participation = methodtest.Clients(9, 5, 6, 3), 1
			s := newSite(t, e)
			s.wait, s.set.Quorum = 3, 0.7
			ctx, cancel := context.WithCancel(transporttest.TestContext(t))
			defer cancel()
			left := s.joinAll(ctx, cancel, 3)
			last := make(chan error, 1)
			err := s.serve(ctx, false, func(_ *transport.Settings, run *engine.Settings) {
				run.OnRound = func(r record.Record) {
					if got := slices.Contains(r.Clients, 3); got != (r.Round > 0) {
						t.Errorf("round %d counts clients %v", r.Round, r.Clients)
					}
					if r.Round == 0 {
						go func() { last <- s.join(ctx, 3) }()
						transporttest.Eventually(t, "joining",
							func() bool { return s.hub.Load().Participants()[3].Joined })
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			left()
			if err := <-last; err != nil || strings.Contains(s.log.String(), "no answer") {
				t.Error("a client did not answer", err)
			}
		})
	}
}

// leaver goes away in the middle of its first training and forgets what it was doing, once.
type leaver struct {
	transport.LocalExecutor
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

// A client that goes in the middle of a round and comes back as another process is waited for, as the quorum asks.
func TestClientComesBack(t *testing.T) {
	e := transporttest.FedPHA.Experiment(t)
	e.Plan.Participation = 1
	want, _ := simulated(t, e, false)
	s := newSite(t, e)
	s.set.Deadline = 2 * time.Second
	ctx, cancel := context.WithCancel(transporttest.TestContext(t))
	defer cancel()
	first, leave := context.WithCancel(ctx)
	var left atomic.Bool
	s.part = func(client int, p transport.LocalExecutor) transport.Executor {
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
	want, records := simulated(t, transporttest.FedPHA.Experiment(t), false)
	s := newSite(t, transporttest.FedPHA.Experiment(t))
	echo := nats.Header{"Echo": []string{"1"}}
	n := 0
	_, err := s.nats.Conn().Subscribe("pf.toy.from.*.reply", func(m *nats.Msg) {
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
	if got := s.hub.Load().Totals(); got.Late == 0 || got.Dropped == 0 {
		t.Errorf("%+v: nothing was dropped", got)
	}
}

// A client of a run that was given up learns that the server began another.
func TestAnotherRun(t *testing.T) {
	s := newSite(t, transporttest.FedPHA.Experiment(t))
	ctx, cancel := context.WithCancel(transporttest.TestContext(t))
	defer cancel()
	first, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- s.serve(first, false) }()
	joined := make(chan error, 1)
	go func() { joined <- s.join(ctx, 0) }()
	transporttest.Eventually(t, "joining", func() bool {
		h := s.hub.Load()
		return h != nil &&
			h.Participants()[0].Joined
	})
	stop()
	<-served
	s.set.ID = subjects.NewID()
	second, end := context.WithCancel(ctx)
	go func() { served <- s.serve(second, false) }()
	if err := <-joined; err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("the client says %v", err)
	}
	end()
	<-served
}

// slow is a client that is not done with one training before the deadline.
type slow struct{ transport.LocalExecutor }

func (l slow) Execute(ctx context.Context, o message.Instruction, s message.ClientState) (message.Reply,
	*message.ClientState, error) {
	r, next, err := l.LocalExecutor.Execute(ctx, o, s)
	if o.Kind == message.Train && o.Round == 1 {
		<-ctx.Done() // the next order
	}
	return r, next, err
}

// A round goes on at the deadline with those that answered, if they are a quorum; what the slow one did does not count,
// and it is tested with what it had before.
func TestDeadline(t *testing.T) {
	t.Parallel() // it waits for the deadline
	e := transporttest.FedPHA.Experiment(t)
	e.Plan.Participation = 1
	r, err := engine.Run(context.Background(), e, engine.Settings{Wrap: methodtest.LoseReplies(func(round,
		client int) bool {
		return round == 1 && client == 1
	})})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, e)
	s.set.Deadline, s.set.Quorum = 5*time.Second, 0.75 // long enough for the others on a busy machine
	s.part = func(client int, p transport.LocalExecutor) transport.Executor {
		if client == 1 {
			return slow{p}
		}
		return p
	}
	s.run()
	if s.learned() != transporttest.BytesOf(t, r.Prompts) || s.records() != transporttest.WithoutTimes(t, r.Records) {
		t.Error("other bytes or records than in one process without that upload")
	}
}
