package secure_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/message"
	"promptfed/federation/engine/record"
	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/federation/privacy/secure"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
)

type options = map[string]any

var config = secure.Config{Threshold: 0.6, Bits: 24, Clip: 1, ExtraClip: 16, Examples: 1 << 16}

// experiment returns three rounds of a stack on five toy clients and its layer.
func experiment(t *testing.T, c secure.Config, base string, with []string, o options) (*spec.Experiment,
	*secure.Aggregation) {
	t.Helper()
	return experimentOf(t, c, methodtest.Build(t, base, with, o), 3, 4, 9, 3, 5, 6)
}

// experimentOf returns rounds of a method on toy clients of some sizes, with a test after the last, and their layer.
func experimentOf(t *testing.T, c secure.Config, m method.Method, rounds int, sizes ...int) (*spec.Experiment,
	*secure.Aggregation) {
	t.Helper()
	weighting, beside, err := methods.AveragedUploads(m)
	goldentest.NoError(t, err)
	l, err := secure.New(c, weighting, beside, len(sizes), len(sizes))
	goldentest.NoError(t, err)
	return &spec.Experiment{Method: m, Classes: methodtest.Classes, Template: "a {}.",
		Clients: methodtest.ClientsOfOneBackbone(sizes...), Plan: spec.Plan{Rounds: rounds, TestEvery: rounds, Seed: 5},
		Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}}}, l
}

func over(l *secure.Aggregation, encode bool) engine.Settings {
	return engine.Settings{Client: client.Settings{Guard: l.Guard()}, Workers: 2, Encode: encode, Wrap: l.Wrap}
}

// maxDiff returns the largest difference of two results' prompts.
func maxDiff(t *testing.T, a, b *engine.Result) float64 {
	t.Helper()
	if len(a.Prompts) != len(b.Prompts) {
		t.Fatalf("%v and %v", a.Prompts.Names(), b.Prompts.Names())
	}
	worst := 0.0
	for name, x := range a.Prompts {
		for i, v := range x.Data {
			worst = max(worst, math.Abs(float64(v-b.Prompts[name].Data[i])))
		}
	}
	return worst
}

// After one round the shared prompts differ by at most half a step and the rounding of float32, and everything on
// clients is equal. Two runs are equal to the last bit, although their masks differ, and so are runs with encoded
// messages.
func TestSameAsPlain(t *testing.T) {
	for _, c := range []struct {
		base string
		with []string
		o    options
	}{
		{"promptfl", nil, options{"tokens": 3, "init_std": 0.4}},
		{"fedpha", nil, options{"global_tokens": 3, "local_tokens": []int{2, 4}, "projector": "exact-null"}},
		{"pfeddc", nil, nil},
		{"fedclip", nil, nil},
		{"promptfl", []string{"scaffold"}, options{"tokens": 3}},
		{"fedpha", []string{"feddyn"}, options{"projector": "exact-null", "feddyn": options{"alpha": 0.5}}},
		{"promptfl", []string{"fedprox", "fedopt"}, options{"kind": "momentum", "weighting": "uniform"}},
	} {
		for _, conf := range []secure.Config{config, {Threshold: 1, Bits: 12, Clip: 0.5, ExtraClip: 8, Examples: 9}} {
			e, l := experiment(t, conf, c.base, c.with, c.o)
			e.Plan.Rounds = 1
			plain, sum := enginetest.Run(t, e, engine.Settings{}), enginetest.Run(t, e, over(l, false))
			most := l.Step()/2 + 1e-6 // values are below 8, where float32 is finer than 1e-6
			if slices.Contains(c.with, "feddyn") {
				most += l.Step() / 2 // its server repeats the mean's update from its state
			}
			if d := maxDiff(t, plain, sum); !(d <= most) || d == 0 && conf.Bits == 12 {
				t.Errorf("%s%v, %d bits: prompts differ by %v; at most %v", c.base, c.with, conf.Bits, d, most)
			}
			if n := sum.Records[0].Notes; n["secagg_clipped"] != 0 || n["secagg_refused"] != 0 {
				t.Errorf("%v", n)
			}
			if p, s := plain.Records[0], sum.Records[0]; !slices.Equal(p.Clients, s.Clients) ||
				math.Abs(*p.Loss-*s.Loss) > 64*l.Step()/conf.Clip || *p.Loss == *s.Loss || s.BytesUp <= 0 ||
				s.BytesDown <= p.BytesDown {
				t.Errorf("%+v and %+v", p, s)
			}
		}
		e, l := experiment(t, config, c.base, c.with, c.o)
		first, second := enginetest.Run(t, e, over(l, false)), enginetest.Run(t, e, over(l, false))
		encoded := enginetest.Run(t, e, over(l, true))
		if maxDiff(t, first, second) != 0 || maxDiff(t, first, encoded) != 0 {
			t.Errorf("%s%v: runs differ", c.base, c.with)
		}
		if d := maxDiff(t, enginetest.Run(t, e, engine.Settings{}), first); !(d < 1e-5) {
			t.Errorf("%s%v: after three rounds prompts differ by %v", c.base, c.with, d)
		}
	}
}

// flaky loses or changes some clients' answers to some steps.
type flaky struct {
	message.Cohort
	lose   map[string][]int
	change func(o message.Instruction, r *message.Reply)
	seen   func(o message.Instruction, r []message.Reply)
	// inRound is the only round with lost answers, counted from 1; 0 for all.
	inRound int
}

func (f flaky) Run(ctx context.Context, o message.Instruction) ([]message.Reply, error) {
	replies, err := f.Cohort.Run(ctx, o)
	if len(o.Clients) == 0 {
		return nil, fmt.Errorf("%s %s asks nobody", o.Kind, o.Statistic)
	}
	name := o.Statistic
	if o.Kind == message.Train {
		name = "train"
	}
	if f.inRound == 0 || f.inRound == o.Round+1 {
		replies = slices.DeleteFunc(replies, func(r message.Reply) bool {
			return slices.Contains(f.lose[name], r.Client)
		})
	}
	for i := range replies {
		if f.change != nil {
			f.change(o, &replies[i])
		}
	}
	if f.seen != nil {
		f.seen(o, replies)
	}
	return replies, err
}

func (f flaky) around(l *secure.Aggregation) engine.Settings {
	set := over(l, false)
	set.Wrap = func(c message.Cohort) message.Cohort {
		f.Cohort = c
		return l.Wrap(f)
	}
	return set
}

// Two of five clients may drop out at any step: the round has the clients whose vectors arrived. With a third the round
// is skipped, and the next one counts.
func TestDropouts(t *testing.T) {
	for _, step := range []string{"secagg-keys", "secagg-shares", "secagg-check", "train", "secagg-agree",
		"secagg-reveal"} {
		e, l := experiment(t, config, "promptfl", nil, options{"tokens": 2})
		e.Plan.Rounds = 1
		sum := enginetest.Run(t, e, flaky{lose: map[string][]int{step: {1, 4}}}.around(l))
		set, want := engine.Settings{}, []int{0, 1, 2, 3, 4}
		if !late(step) { // their vectors have arrived
			want = []int{0, 2, 3}
			set.Wrap = methodtest.LoseReplies(func(_, client int) bool { return client == 1 || client == 4 })
		}
		if d := maxDiff(t, enginetest.Run(t, e, set), sum); !(d <= l.Step()/2+1e-6) ||
			!slices.Equal(sum.Records[0].Clients, want) {
			t.Errorf("%s: prompts differ by %v, clients %v", step, d, sum.Records[0].Clients)
		}
		e.Plan.Rounds = 2
		f := flaky{lose: map[string][]int{step: {0, 1, 4}}, inRound: 1}
		two := enginetest.Run(t, e, f.around(l)).Records
		skipped(t, two[0], "secure aggregation: 2 clients", "the threshold is 3")
		if !slices.Equal(two[1].Clients, []int{0, 1, 2, 3, 4}) || len(two[1].Warnings) > 0 {
			t.Errorf("%s: the next round has %v, %v", step, two[1].Clients, two[1].Warnings)
		}
	}
}

// skipped fails unless a round counted nobody and has a warning.
func skipped(t *testing.T, r record.Record, words ...string) {
	t.Helper()
	text := strings.Join(r.Warnings, "; ")
	for _, w := range words {
		if len(r.Clients) > 0 || !strings.Contains(text, w) {
			t.Errorf("round %d counts %v and says %q, not %q", r.Round+1, r.Clients, text, w)
		}
	}
}

// late reports whether a step comes after the vectors.
func late(step string) bool { return step == "secagg-agree" || step == "secagg-reveal" }

// No message of a client holds its parameters, updates, numbers of examples or losses.
func TestServerSeesNoUpload(t *testing.T) {
	e, l := experiment(t, config, "promptfl", nil, options{"tokens": 3})
	e.Plan.Rounds = 1
	n := 0
	enginetest.Run(t, e, flaky{seen: func(o message.Instruction, replies []message.Reply) {
		for _, r := range replies {
			if o.Kind == message.Test {
				continue
			}
			n++
			if len(r.Upload.Shared) > 0 || r.Upload.N != 1 || r.Stats != (message.Stats{}) {
				t.Errorf("%s %s: %+v", o.Kind, o.Statistic, r)
			}
			for name, x := range r.Upload.Extra {
				if !strings.HasPrefix(name, "guard/") || !x.IsInt() {
					t.Errorf("%s: %v", name, x)
				}
			}
		}
	}}.around(l))
	if n != 30 {
		t.Errorf("%d messages of five clients, want six each", n)
	}
}

// With differential privacy on clients the server sees only noisy sums: noise and epsilon are the same as without
// secure aggregation.
func TestWithPrivacy(t *testing.T) {
	o := options{"tokens": 40, "clip": 1e-6, "noise": 1e5, "where": "client", "least": 0.8}
	e, l := experiment(t, config, "promptfl", []string{"dp"}, o)
	e.Plan.Rounds = 1
	plain, sum := enginetest.Run(t, e, engine.Settings{}), enginetest.Run(t, e, over(l, false))
	if d := maxDiff(t, plain, sum); !(d <= l.Step()/2+1e-6) {
		t.Errorf("prompts differ by %v", d)
	}
	if a, b := plain.Records[0].Notes["epsilon"], sum.Records[0].Notes["epsilon"]; a != b || !(a >= 0) {
		t.Errorf("epsilon %v and %v", a, b)
	}
	few := enginetest.Run(t, e, flaky{lose: map[string][]int{"train": {1, 4}}}.around(l)).Records[0]
	skipped(t, few, "3 clients uploaded; enough noise needs the uploads of 4 of 5")
}
