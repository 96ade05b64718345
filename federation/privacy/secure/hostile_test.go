package secure_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/method"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// A client with an invalid message at any step counts as gone, and is named.
func TestHostileClient(t *testing.T) {
	broken := []tensor.Map{{}, {"guard/keys": tensor.New(3)}, nil,
		{"guard/masked": tensor.OfInts([]int64{5}, 1), "guard/shares": tensor.OfInts([]int64{-1, 0}, 2),
			"guard/keys": tensor.OfInts([]int64{1 << 60, 0}, 2), "guard/reveal": tensor.OfInts(nil, 0),
			"guard/complaints": tensor.OfInts([]int64{1}, 1),
			"guard/agreed":     tensor.OfInts([]int64{0}, 1)},
		{"guard/masked": tensor.OfInts([]int64{8, 1}, 2), "guard/shares": tensor.OfInts([]int64{8, 1}, 2),
			"guard/keys": tensor.OfInts([]int64{8, 1}, 2), "guard/reveal": tensor.OfInts([]int64{4, 1 << 20}, 2),
			"guard/complaints": tensor.OfInts([]int64{4, 1 << 20}, 2),
			"guard/agreed":     tensor.OfInts([]int64{8, 1}, 2)}}
	for _, step := range []string{"secagg-keys", "secagg-shares", "secagg-check", "train", "secagg-agree",
		"secagg-reveal"} {
		for i, b := range broken {
			e, l := experiment(t, config, "promptfl", nil, options{"tokens": 2})
			e.Plan.Rounds = 1
			r := enginetest.Run(t, e, flaky{change: func(o message.Instruction, r *message.Reply) {
				if r.Client == 2 && (o.Statistic == step || o.Kind == message.Train && step == "train") {
					r.Upload.Extra = b
				}
			}}.around(l))
			want := []int{0, 1, 3, 4}
			if late(step) {
				want = []int{0, 1, 2, 3, 4}
			}
			if rec := r.Records[0]; !slices.Equal(rec.Clients, want) || rec.Notes["secagg_refused"] != 1 ||
				len(rec.Refused) != 1 || rec.Refused[0].Client != 2 {
				t.Errorf("%s, message %d: %v, %v, %v", step, i, rec.Clients, rec.Notes, rec.Refused)
			}
		}
	}
}

// A guard returns one vector in a session, the same for every request.
func TestGuardGivesOneVector(t *testing.T) {
	e, l := experiment(t, config, "promptfl", nil, options{"tokens": 2})
	e.Plan.Rounds = 1
	guard := l.Guard()
	set := over(l, false)
	set.Client.Guard = guard
	var train message.Instruction
	var sent tensor.Map
	set.Wrap = func(c message.Cohort) message.Cohort {
		return l.Wrap(flaky{Cohort: c, seen: func(o message.Instruction, r []message.Reply) {
			if o.Kind == message.Train {
				train, sent = o, r[0].Upload.Extra
			}
		}})
	}
	enginetest.Run(t, e, set)
	up := method.Upload{N: 3, Shared: train.Shared.Clone().Scale(2)}
	if err := guard.Protect(0, train, &up, &message.Stats{}); err != nil || !slices.Equal(up.Extra["guard/masked"].Ints,
		sent["guard/masked"].Ints) || len(up.Shared) > 0 {
		t.Errorf("%v, %v", up, err)
	}
	train.PerClient = map[int]tensor.Map{0: train.PerClient[1].Clone()}
	train.PerClient[0]["guard/senders"].Ints[1] ^= 3 << 32
	up = method.Upload{N: 3, Shared: train.Shared.Clone().Scale(2)}
	if err := guard.Protect(0, train, &up, &message.Stats{}); err == nil || len(up.Shared) == 0 {
		t.Error("other senders were taken in the same session")
	}
	goldentest.WantError(t, guard.Protect(9, train, &up, &message.Stats{}), "no session")
	train.Round = 7
	if err := guard.Protect(0, train, &up, &message.Stats{}); err == nil {
		t.Error("an order of another round was taken")
	}
}

func TestConfig(t *testing.T) {
	for words, c := range map[string]secure.Config{
		"threshold: 0.5": {Threshold: 0.5, Bits: 24, Clip: 1, Examples: 1}, "threshold: 1.5": {Threshold: 1.5, Bits: 24,
			Clip: 1, Examples: 1},
		"least: 1": {Threshold: 0.6, Bits: 24, Clip: 1, ExtraClip: 1, Examples: 1, Least: 1},
		"bits: 7":  {Threshold: 0.6, Bits: 7, Clip: 1, Examples: 1}, "clip: 0": {Threshold: 0.6, Bits: 24, Examples: 1},
		"statistics: \"some\"": {Threshold: 0.6, Bits: 24, Clip: 1, ExtraClip: 1, Statistics: "some", Examples: 1},
		"extra_clip: 0":        {Threshold: 0.6, Bits: 24, Clip: 1, Examples: 1}, "examples: 0": {Threshold: 0.6,
			Bits: 24, Clip: 1},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "secure_aggregation."+words) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	least := secure.Config{Threshold: 0.51, Least: 2, Bits: 8, Clip: 1e-9, ExtraClip: 1e-9, Examples: 1}
	most := secure.Config{Threshold: 1, Bits: 32, Clip: 1e6, ExtraClip: 1e6, Examples: 1 << 24, Statistics: "clear"}
	if err := errors.Join(least.Check(), most.Check()); err != nil {
		t.Errorf("limits are refused: %v", err)
	}
	for words, beyond := range map[string]func(c *secure.Config){
		"threshold: 1.01": func(c *secure.Config) { c.Threshold = 1.01 },
		"bits: 33":        func(c *secure.Config) { c.Bits = 33 },
		"clip: 1.0":       func(c *secure.Config) { c.Clip = 1.01e6 },
		"extra_clip: 1.0": func(c *secure.Config) { c.ExtraClip = 1.01e6 },
		"examples: 16777": func(c *secure.Config) { c.Examples = 1<<24 + 1 },
		"least: -1":       func(c *secure.Config) { c.Least = -1 },
	} {
		c := most
		beyond(&c)
		goldentest.WantError(t, c.Check(), "secure_aggregation."+words)
	}
	// Two groups of 4 clients, of which 60 % make 2.4, need rounds of 8. Without groups 2 clients are enough.
	grouped := secure.Defaults()
	grouped.Threshold, grouped.Least = 0.6, 2
	if _, err := secure.New(grouped, "uniform", nil, 8, 8); err != nil {
		t.Error(err)
	}
	_, err := secure.New(grouped, "uniform", nil, 8, 7)
	goldentest.WantError(t, err,
		"secure_aggregation.least: 2; the 7 clients of a round cannot be split into groups of 4")
	grouped.Least = 0
	if _, err := secure.New(grouped, "uniform", nil, 2, 2); err != nil {
		t.Error(err)
	}
	_, err = secure.New(grouped, "uniform", nil, 2, 3)
	goldentest.WantError(t, err, "3 of 2 clients in a round; there must be 2 or more")
	if err := secure.Defaults().Check(); err != nil || secure.Defaults().Enabled() {
		t.Errorf("%v", err)
	}
	for _, clients := range []int{1, 3} {
		if _, err := secure.New(config, "examples", nil, clients, 1); err == nil {
			t.Errorf("one client of %d in a round was taken", clients)
		}
	}
	_, err = secure.New(secure.Config{Threshold: 0.6, Bits: 32, Clip: 1, ExtraClip: 1, Examples: 1 << 24},
		"examples", nil, 1<<9, 1<<9)
	goldentest.WantError(t, err, "64 bits")
	if _, err := secure.New(config, "median", nil, 5, 5); err == nil {
		t.Error("medians were taken")
	}
}
