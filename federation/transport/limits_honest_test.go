package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"promptfed/configs"
	"promptfed/federation/engine"
	"promptfed/federation/experiment"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
)

// honest looks at what honest clients of this process upload as a hub would.
type honest struct {
	engine.Cohort
	t    *testing.T
	hub  *Hub
	high map[string]float64 // by kind: the largest length, in what is usual
}

func (c *honest) Run(ctx context.Context, o engine.Order) ([]engine.Reply, error) {
	replies, err := c.Cohort.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, r := range replies {
		if o.Kind != engine.Train && o.Kind != engine.Ask {
			break
		}
		if err := o.Refuse(r, false); err != nil {
			c.t.Errorf("round %d, client %d: %v", o.Round, r.Client, err)
		}
		if err := c.hub.bounded(o, r); err != nil {
			c.t.Errorf("round %d, client %d: %v", o.Round, r.Client, err)
		}
	}
	c.ratios(o, replies)
	kept, err := c.hub.limit(o, replies)
	if l := c.hub.Limited(); len(l.Refused)+len(l.Cut) > 0 {
		c.t.Errorf("round %d: an honest client is limited: %+v", o.Round, l)
	}
	return kept, err
}

// ratios notes how far lengths are above what is usual.
func (c *honest) ratios(o engine.Order, replies []engine.Reply) {
	lengths := map[string]map[int]float64{}
	for _, r := range replies {
		declared, ok := c.hub.checked(o, r.Client)
		if !ok {
			continue
		}
		for kind, v := range measure(o, r, declared) {
			if lengths[kind] == nil {
				lengths[kind] = map[int]float64{}
			}
			if v > 0 {
				lengths[kind][r.Client] = v
			}
		}
	}
	for kind, of := range lengths {
		if u := c.hub.norms.usual(kind, of, c.hub.set.Rate(o.Round)); u > 0 {
			c.high[kind] = max(c.high[kind], slices.Max(slices.Collect(maps.Values(of)))/u)
		}
	}
}

// watch runs an experiment of clients that are honest.
func watch(t *testing.T, e *engine.Experiment, set engine.Settings) map[string]float64 {
	t.Helper()
	rate, err := e.Training.Schedule.New(e.Training.Optim.LR)
	if err != nil {
		t.Fatal(err)
	}
	h := &Hub{set: Settings{Method: e.Method, Rate: rate, Log: slog.New(slog.DiscardHandler)},
		known: make([]member, len(e.Clients)), trained: map[int]string{}}
	for i, c := range e.Clients {
		k := &h.known[i]
		k.Member.Joined, k.Examples, k.Member.Task = true, c.Train.Len(), c.Backbone.Task()
		k.Member.Task.Client, k.Member.Task.Clients, k.Member.Task.Classes = i, len(e.Clients), len(e.Classes)
	}
	c := &honest{t: t, hub: h, high: map[string]float64{}}
	inner := set.Around
	set.Around = func(cohort engine.Cohort) engine.Cohort {
		if inner != nil {
			cohort = inner(cohort)
		}
		c.Cohort = cohort
		return c
	}
	if _, err := engine.Run(context.Background(), e, set); err != nil {
		t.Fatal(err)
	}
	return c.high
}

func printed(high map[string]float64) string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(high)) {
		out = append(out, fmt.Sprintf("%s %.1f", kind, high[kind]))
	}
	return strings.Join(out, ", ")
}

// Every method declares exactly what its clients upload, tensors and terms of the loss, and nothing that honest clients upload is refused or weighs
// less: with every method and wrapper, with clients of 2 to 20 examples, four or two of which train in a round, with a
// learning rate that starts a hundredth as large as it becomes.
func TestHonestUploads(t *testing.T) {
	for _, entry := range methods.Table {
		for _, participation := range []float64{1, 0.5} {
			t.Run(fmt.Sprint(entry.Name, " ", participation), func(t *testing.T) {
				stack := []string{entry.Name}
				if entry.Wrapper {
					stack = []string{"promptfl", entry.Name}
				}
				var options map[string]any
				if entry.Name == "fedtpg" {
					options = map[string]any{"heads": 2} // of a prompt that is 6 wide
				}
				m, err := methods.Build(stack[0], stack[1:], options)
				if err != nil {
					t.Fatal(err)
				}
				e := &engine.Experiment{Name: "toy", MethodName: strings.Join(stack, "+"), Method: m,
					Classes: methodtest.Classes, Template: "a {}.", Clients: methodtest.Alike(20, 5, 6, 2),
					Training: engine.Training{Epochs: 2, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.05, Momentum: 0.9},
						Schedule: optim.Schedule{Kind: "cosine", TMax: 6, Warmup: 1, WarmupLR: 5e-4}},
					Plan: engine.Plan{Rounds: 6, TestEvery: 2, Seed: 5, Participation: participation}}
				t.Log(printed(watch(t, e, engine.Settings{Terms: true})))
			})
		}
	}
}

// The same for the configurations of the repository, on drawn images; it prints how many times what is usual the
// longest move and extra were. PROMPTFED_TEST_LIMITS holds patterns of configurations, PROMPTFED_TEST_SETS keys.
func TestHonestConfigurations(t *testing.T) {
	if os.Getenv("PROMPTFED_TEST_LIMITS") == "" {
		t.Skip("set PROMPTFED_TEST_LIMITS to patterns of configurations")
	}
	for _, pattern := range strings.Fields(os.Getenv("PROMPTFED_TEST_LIMITS")) {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			t.Run(filepath.Base(path), func(t *testing.T) {
				c, err := configs.Load(path, strings.Fields(os.Getenv("PROMPTFED_TEST_SETS")))
				if err != nil {
					t.Fatal(err)
				}
				b, err := experiment.Open(context.Background(), c, func(string, int, int) {})
				if err == nil {
					err = errors.Join(b.Settle(), b.Features(context.Background(), func(string, int, int) {}))
				}
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				t.Log(printed(watch(t, b.Engine, b.Settings())))
			})
		}
	}
}
