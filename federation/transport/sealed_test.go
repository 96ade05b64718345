package transport_test

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
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/privacy/secure"
	"promptfed/federation/transport"
	"promptfed/federation/transport/transporttest"
)

// With secure aggregation the network gives the bytes of one process too, and both are what plain uploads give but for
// the rounding of the masked numbers.
func TestSealedSameBytes(t *testing.T) {
	for _, s := range []transporttest.Stack{transporttest.Method("promptfl", nil, map[string]any{"tokens": 2}),
		transporttest.FedPHA,
		transporttest.Method("pfeddc", nil, nil)} {
		t.Run(s.Method, func(t *testing.T) {
			plain, err := engine.Run(context.Background(), s.Experiment(t), engine.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			e := s.Experiment(t)
			e.Secure = "on"
			config := secure.Defaults()
			config.Threshold = 0.6
			layer, err := secure.New(config, secure.Examples, nil, len(e.Clients), 3)
			if err != nil {
				t.Fatal(err)
			}
			sealed, err := engine.Run(context.Background(), e,
				engine.Settings{Settings: client.Settings{Guard: layer.Guard()},
					Wrap: layer.Wrap})
			if err != nil {
				t.Fatal(err)
			}
			for name, v := range plain.Prompts {
				for i, x := range v.Data {
					if d := math.Abs(float64(x - sealed.Prompts[name].Data[i])); d > 1e-3 {
						t.Fatalf("%s: element %d is off by %g", name, i, d)
					}
				}
			}
			site := newSite(t, e)
			site.set.Masked = true
			site.part = func(_ int, p transport.LocalExecutor) transport.Executor {
				p.Worker = client.NewWorker(e, client.Settings{Guard: layer.Guard()})
				return p
			}
			site.run(func(_ *transport.Settings, run *engine.Settings) { run.Wrap = layer.Wrap })
			if !t.Failed() && site.learned() != transporttest.BytesOf(t, sealed.Prompts) {
				t.Error("other bytes than in one process")
			}
		})
	}
}

// sealedSite is a site under secure aggregation whose clients and server keep what they must in their folders.
func sealedSite(t *testing.T, e *spec.Experiment, layer *secure.Layer) *site {
	t.Helper()
	e.Secure = "on"
	s := newSite(t, e)
	s.set.Masked = true
	s.part = func(id int, p transport.LocalExecutor) transport.Executor {
		if err := os.MkdirAll(s.state(id), 0o700); err != nil {
			t.Error(err)
		}
		who, err := s.identity(id).Signatures(s.state(id))
		if err != nil {
			t.Error(err)
		}
		guard, err := layer.GuardAt(id, secure.Party{Run: s.id, Dir: s.state(id), Who: who})
		if err != nil {
			t.Error(err)
		}
		p.Worker = client.NewWorker(e, client.Settings{Guard: guard})
		return p
	}
	return s
}

// around is the server's side, as it stands in the hub's folder.
func (s *site) around(layer *secure.Layer) func(*transport.Settings, *engine.Settings) {
	return func(set *transport.Settings, run *engine.Settings) {
		who, err := set.Identity.Signatures("")
		if err == nil {
			err = os.MkdirAll(set.Dir, 0o700)
		}
		if err == nil {
			run.Wrap, err = layer.WrapAt(secure.Party{Run: s.id, Dir: set.Dir, Who: who})
		}
		if err != nil {
			s.t.Error(err)
		}
	}
}

// dying is a hub whose server dies once, when it has the answers to one step of round 1.
type dying struct {
	*transport.Server
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

// A round goes on in its one session when the server and all clients were killed after any of its steps, and gives the
// bytes of one process.
func TestSealedRestarts(t *testing.T) {
	scaffold := transporttest.Method("promptfl", []string{"scaffold"}, map[string]any{"tokens": 2,
		"weighting": "uniform"})
	config := secure.Defaults()
	config.Threshold = 0.6
	e := scaffold.Experiment(t)
	e.Secure = "on"
	weighting, beside, err := methods.AveragedUploads(e.Method)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := secure.New(config, weighting, beside, 4, 3)
	if err != nil {
		t.Fatal(err)
	}
	r, err := engine.Run(context.Background(), e, engine.Settings{Settings: client.Settings{Guard: layer.Guard()},
		Wrap: layer.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	want := transporttest.BytesOf(t, r.Prompts)
	for _, step := range []string{"computesecagg-keys", "computesecagg-shares", "train", "computesecagg-agree",
		"computesecagg-reveal"} {
		t.Run(step, func(t *testing.T) {
			s := sealedSite(t, scaffold.Experiment(t), layer)
			ctx, cancel := context.WithCancel(transporttest.TestContext(t))
			defer cancel()
			first, kill := context.WithCancel(ctx)
			left := s.joinAll(first, cancel, 4)
			var died atomic.Bool
			s.remote = func(h *transport.Server) message.Remote { return dying{h, step, &died} }
			if err := s.serve(ctx, false, s.around(layer)); err == nil || !strings.Contains(err.Error(), "dies") {
				t.Fatal(err)
			}
			kill()
			left()
			left = s.joinAll(ctx, cancel, 4)
			if err := s.serve(ctx, true, s.around(layer)); err != nil {
				t.Fatal(err)
			}
			left()
			if s.learned() != want {
				t.Error("other bytes than in one process")
			}
			listed := ""
			for k := range 4 {
				// of one that was never drawn there is none
				b, _ := os.ReadFile(filepath.Join(s.state(k), secure.LogFile))
				listed += string(b)
			}
			if n := strings.Count(listed, `"survivors":[`); n != 9 || strings.Contains(listed, "refused") {
				t.Errorf("three clients of three rounds list %d sums:\n%s", n, listed)
			}
		})
	}
}
