package server_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	netclient "promptfed/federation/net/client"
	"promptfed/federation/net/nettest"
	"promptfed/federation/net/server"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/busytest"
	"promptfed/runtime/goldentest"
)

// Under secure aggregation the network gives the bytes of one process, too. Both equal the result of plain uploads
// except for the rounding of the masked numbers.
func TestSealedSameBytes(t *testing.T) {
	for _, s := range []nettest.Stack{nettest.Method("promptfl", nil, map[string]any{"tokens": 2}),
		nettest.FedPHA, nettest.Method("pfeddc", nil, nil)} {
		t.Run(s.Method, func(t *testing.T) {
			plain := enginetest.Run(t, s.Experiment(t), engine.Settings{})
			e := s.Experiment(t)
			e.Secure = "on"
			config := secure.Defaults()
			config.Threshold = 0.6
			layer, err := secure.New(config, secure.Examples, nil, len(e.Clients), 3)
			goldentest.NoError(t, err)
			sealed := enginetest.Run(t, e,
				engine.Settings{Client: client.Settings{Guard: layer.Guard()}, Wrap: layer.Wrap})
			for name, v := range plain.Prompts {
				for i, x := range v.Data {
					if d := math.Abs(float64(x - sealed.Prompts[name].Data[i])); d > 1e-3 {
						t.Fatalf("%s: element %d is off by %g", name, i, d)
					}
				}
			}
			site := newSite(t, e)
			site.set.Masked = true
			site.part = func(_ int, p netclient.LocalExecutor) netclient.Executor {
				p.Worker = client.NewWorker(e, client.Settings{Guard: layer.Guard()})
				return p
			}
			site.run(func(_ *server.Settings, run *engine.Settings) { run.Wrap = layer.Wrap })
			if !t.Failed() && site.learned() != nettest.BytesOf(t, sealed.Prompts) {
				t.Error("other bytes than in one process")
			}
		})
	}
}

// sealedSite returns a site under secure aggregation, whose clients and server keep their keys in their folders.
func sealedSite(t *testing.T, e *spec.Experiment, layer *secure.Aggregation) *site {
	t.Helper()
	e.Secure = "on"
	s := newSite(t, e)
	s.set.Masked = true
	s.part = func(id int, p netclient.LocalExecutor) netclient.Executor {
		if err := os.MkdirAll(s.state(id), 0o700); err != nil {
			t.Error(err)
		}
		who, err := s.identity(id).Signatures(s.state(id))
		if err != nil {
			t.Error(err)
		}
		guard, err := layer.GuardAt(id, secure.Side{Run: s.id, Dir: s.state(id), Who: who})
		if err != nil {
			t.Error(err)
		}
		p.Worker = client.NewWorker(e, client.Settings{Guard: guard})
		return p
	}
	return s
}

// serverSide wraps the engine's clients with the server's side of secure aggregation, which has its state in the
// server's folder.
func (s *site) serverSide(layer *secure.Aggregation) func(*server.Settings, *engine.Settings) {
	return func(set *server.Settings, run *engine.Settings) {
		who, err := set.Identity.Signatures("")
		if err == nil {
			err = os.MkdirAll(set.Dir, 0o700)
		}
		if err == nil {
			run.Wrap, err = layer.WrapAt(secure.Side{Run: s.id, Dir: set.Dir, Who: who})
		}
		if err != nil {
			s.t.Error(err)
		}
	}
}

// dying is a server that dies once, when it has the replies to one step of round 1.
type dying struct {
	*server.Server
	step string
	done *atomic.Bool
}

func (d dying) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	r, err := d.Server.Run(ctx, o)
	if err == nil && o.Round == 1 && string(o.Kind)+o.Statistic == d.step && d.done.CompareAndSwap(false, true) {
		err = errors.New("the server dies")
	}
	return r, err
}

// A round continues in its session after the server and all clients were killed after any of its steps, and gives the
// bytes of one process.
func TestSealedRestarts(t *testing.T) {
	t.Parallel() // it waits for connections
	scaffold := nettest.Method("promptfl", []string{"scaffold"}, map[string]any{"tokens": 2, "weighting": "uniform"})
	config := secure.Defaults()
	config.Threshold = 0.6
	e := scaffold.Experiment(t)
	e.Secure = "on"
	weighting, beside, err := methods.AveragedUploads(e.Method)
	goldentest.NoError(t, err)
	layer, err := secure.New(config, weighting, beside, 4, 3)
	goldentest.NoError(t, err)
	r := enginetest.Run(t, e, engine.Settings{Client: client.Settings{Guard: layer.Guard()}, Wrap: layer.Wrap})
	want := nettest.BytesOf(t, r.Prompts)
	for _, step := range []string{"computesecagg-keys", "computesecagg-shares", "train", "computesecagg-agree",
		"computesecagg-reveal"} {
		t.Run(step, func(t *testing.T) {
			s := sealedSite(t, scaffold.Experiment(t), layer)
			ctx, cancel := context.WithCancel(busytest.Context(t))
			defer cancel()
			first, kill := context.WithCancel(ctx)
			left := s.joinAll(first, cancel, 4)
			var died atomic.Bool
			s.wrap = func(h *server.Server) message.Cohort { return dying{h, step, &died} }
			goldentest.WantError(t, s.serve(ctx, false, s.serverSide(layer)), "dies")
			kill()
			left()
			left = s.joinAll(ctx, cancel, 4)
			goldentest.NoError(t, s.serve(ctx, true, s.serverSide(layer)))
			left()
			if s.learned() != want {
				t.Error("other bytes than in one process")
			}
			listed := ""
			for k := range 4 {
				// a client that was never drawn has none
				b, _ := os.ReadFile(filepath.Join(s.state(k), secure.LogFile))
				listed += string(b)
			}
			if n := strings.Count(listed, `"survivors":[`); n != 9 || strings.Contains(listed, "refused") {
				t.Errorf("three clients of three rounds list %d sums:\n%s", n, listed)
			}
		})
	}
}
