package server_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/state"
	"promptfed/federation/net/certs"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/federation/net/wire"
	"promptfed/runtime/busytest"
	"promptfed/runtime/safetensors"
	"promptfed/runtime/tensor"
)

// site is a server with its run folder, and the folders of its clients.
type site struct {
	t     testing.TB
	e     *spec.Experiment
	dir   string
	id    string
	set   server.Settings
	log   *nettest.Logs
	url   string
	token string
	wait  int // clients that are there at the start; 0 for all
	hub   atomic.Pointer[server.Server]
	// wrap puts something between the engine and the hub; nil for nothing.
	wrap func(h *server.Server) message.Cohort
	part func(client int, p netclient.LocalExecutor) netclient.Executor // nil for the client's own
	each func(client int, c *wire.JoinRequest, p *netclient.LocalExecutor)
	who  func(client int) certs.Identity // nil for keys that are made
}

func newSite(t testing.TB, e *spec.Experiment) *site {
	s := &site{t: t, e: e, dir: t.TempDir(), id: wire.NewID(), log: &nettest.Logs{}}
	s.set = server.Settings{Name: "toy", ID: s.id, Clients: len(e.Clients), Quorum: 1, KeepQuorum: true,
		RunSpec: open(e.RunSpec()), Method: e.Method, Dir: filepath.Join(s.dir, "hub"), Log: s.log.Logger()}
	s.set.Listen = busytest.Address(t, "127.0.0.1")
	s.url = "https://" + s.set.Listen
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

// open are the terms of a server that has no data.
func open(t spec.RunSpec) spec.RunSpec {
	t.Classes, t.EvaluationSets = nil, nil
	return t
}

// serve runs the experiment.
func (s *site) serve(ctx context.Context, resume bool, change ...func(*server.Settings, *engine.Settings)) error {
	set, run := s.set, engine.Settings{Dir: s.dir, Resume: resume}
	set.Resume = resume
	for _, c := range change {
		c(&set, &run)
	}
	h, err := server.Open(set)
	if err != nil {
		return err
	}
	defer h.Close()
	s.hub.Store(h)
	wait := set.Clients
	if s.wait > 0 {
		wait = s.wait
	}
	terms, err := h.Wait(ctx, wait)
	if err != nil {
		return err
	}
	e := *s.e
	e.Clients, e.Classes, e.Template = nil, terms.Classes, terms.Template
	run.Remote = h
	if s.wrap != nil {
		run.Remote = s.wrap(h)
	}
	if _, err := engine.Run(ctx, &e, run); err != nil {
		return err
	}
	return h.Finish(ctx, e.Plan.Rounds, func(k int) (tensor.Map, tensor.Map, error) {
		m, _, err := state.ReadPrompts(s.dir, k)
		return m.WithoutPrefix("shared"), m.WithoutPrefix(fmt.Sprint("down/", k)), err
	})
}

func (s *site) state(client int) string {
	return filepath.Join(s.dir, fmt.Sprint("client-", client))
}

func (s *site) identity(client int) certs.Identity {
	if s.who == nil {
		return certs.Identity{}
	}
	return s.who(client)
}

// join is one client's process.
func (s *site) join(ctx context.Context, id int, change ...func(*wire.JoinRequest, *netclient.LocalExecutor)) error {
	log := s.log.Logger().With("side", id)
	who, err := s.identity(id).WithKey(s.state(id))
	if err != nil {
		return err
	}
	l := &netclient.Link{URL: s.url, Name: certs.UserOf(id), Identity: who, Token: s.token, Log: log}
	defer l.Close()
	inv, err := netclient.FetchInvitation(ctx, l, wire.DefaultLargest)
	if err != nil {
		return err
	}
	c := s.e.Clients[id]
	task := c.Backbone.Task()
	task.Backbone = c.Backbone.Name()
	card := wire.JoinRequest{RunSpec: s.e.RunSpec(), Participant: message.Participant{Task: task, Domain: c.Domain},
		Backbone: "b", Tokens: "t", Examples: c.Train.Len()}
	worker := client.NewWorker(s.e, client.Settings{})
	defer worker.Close()
	part := netclient.LocalExecutor{Worker: worker, Experiment: s.e, Client: c, Path: filepath.Join(s.state(id),
		record.PromptsFile)}
	if s.each != nil {
		s.each(id, &card, &part)
	}
	for _, f := range change {
		f(&card, &part)
	}
	var does netclient.Executor = part
	if s.part != nil {
		does = s.part(id, part)
	}
	a, err := netclient.NewClient(inv, card, s.state(id), does, log)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// run serves and joins with all clients at once.
func (s *site) run(change ...func(*server.Settings, *engine.Settings)) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(busytest.Context(s.t))
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, false, change...) }()
	busytest.Until(s.t, "the server", func() bool { // a client that comes before would wait for a second
		return len(served) > 0 || s.hub.Load() != nil
	})
	left := s.joinAll(ctx, cancel, len(s.e.Clients))
	if err := <-served; err != nil {
		s.t.Errorf("serve: %v", err)
		cancel()
	}
	left()
}

// joinAll joins with the first n clients; left waits until their runs are over.
func (s *site) joinAll(ctx context.Context, cancel func(), n int) (left func()) {
	var clients sync.WaitGroup
	for k := range n {
		clients.Go(func() {
			if err := s.join(ctx, k); err != nil && ctx.Err() == nil {
				s.t.Errorf("client %d: %v", k, err)
				cancel()
			}
		})
	}
	return clients.Wait
}

func (s *site) learned() string { return nettest.BytesOf(s.t, s.tensors()) }

// tensors puts together what the server and the clients left.
func (s *site) tensors() tensor.Map {
	s.t.Helper()
	all, _, err := safetensors.ReadFile(filepath.Join(s.dir, record.PromptsFile))
	if err != nil {
		s.t.Fatal(err)
	}
	for name := range all {
		if !strings.HasPrefix(name, "shared/") && !strings.HasPrefix(name, "down/") {
			s.t.Errorf("the server holds %s", name)
		}
	}
	for k := range s.e.Clients {
		m, _, err := safetensors.ReadFile(filepath.Join(s.state(k), record.PromptsFile))
		if err != nil {
			s.t.Fatal(err)
		}
		maps.Copy(all, m)
	}
	return all
}

// simulated is what the same experiment gives in one process, plain or through encoded protocol.
func simulated(t testing.TB, e *spec.Experiment, encode bool) (prompts, records string) {
	t.Helper()
	r := enginetest.Run(t, e, engine.Settings{Encode: encode})
	return nettest.BytesOf(t, r.Prompts), nettest.WithoutTimes(t, r.Records)
}

func (s *site) records() string {
	s.t.Helper()
	r, err := record.Records(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return nettest.WithoutTimes(s.t, r)
}
