package loss_test

import (
	"fmt"
	"reflect"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// traced runs three rounds on the toy and returns every traced number.
func traced(t *testing.T, name string, with []string, o methodtest.Options) *trace.Recorder {
	t.Helper()
	m := methodtest.Build(t, name, with, o)
	rec := trace.NewRecorder()
	enginetest.Run(t, &spec.Experiment{Method: m, Classes: methodtest.Classes,
		Template: "a photo of a {}.",
		Clients:  methodtest.Clients(9, 5, 6), Plan: spec.Plan{Rounds: 3, Seed: 5},
		Training: spec.Training{Epochs: 2, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.3, Momentum: 0.9}}},
		engine.Settings{Client: client.Settings{Tracer: rec}})
	return rec
}

// The base method FedAPPR, and PromptFL with FedAPPR's terms, are one computation, bit for bit.
func TestPromptFLWithApprIsFedAPPR(t *testing.T) {
	for _, more := range []methodtest.Options{nil, {"lambda_a": 0.0}, {"lambda_r": 0.0, "view": "base"}} {
		o := methodtest.Options{"tokens": 3, "init_std": 0.4, "warmup": 1, "disc_lr": 0.5, "lambda_a": 0.5,
			"lambda_r": 0.2, "disc_steps": 2}
		for k, v := range more {
			o[k] = v
		}
		want, got := traced(t, "fedappr", nil, o), traced(t, "promptfl", []string{"appr"}, o)
		if len(want.Tensors) != len(got.Tensors) {
			t.Errorf("%v: %d tensors, FedAPPR has %d", more, len(got.Tensors), len(want.Tensors))
		}
		for name, w := range want.Tensors {
			if g := got.Tensors[name]; g == nil || !reflect.DeepEqual(g, w) {
				t.Errorf("%v: %s is %v, of FedAPPR %v", more, name, g, w)
			}
		}
	}
}

func TestApprRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		with    []string
		options methodtest.Options
		words   string
	}{
		{"coop", []string{"appr"}, nil, "appr: it needs a shared text prompt called ctx, global, sigma, text/shared; " +
			"the base method shares nothing"},
		{"zeroshot", []string{"appr"}, nil, "shares nothing"},
		{"promptfl", []string{"appr"}, methodtest.Options{"prompts": []string{"global"}},
			"called global; the base method shares ctx"},
		{"fedappr", []string{"fedprox", "appr"}, nil, "has these terms already"},
		{"fedtpg", []string{"appr"}, methodtest.Options{"prompts": []string{"generator/cross/ff/out/w"}},
			"generator/cross/ff/out/w is [8,32]; the discriminator reads prompts of width 8"},
	} {
		_, err := methods.Build(c.name, c.with, c.options)
		goldentest.WantErrorOf(t, fmt.Sprint(c.name, c.with, c.options), err, c.words)
	}
}

// movesPrompts is a method whose clients upload the received prompt moved by 0.1 along a common direction of all
// clients, and by as much along a direction of their own.
type movesPrompts struct{ method.Method }

func direction(salt int, shape []int) *tensor.Tensor {
	d := methodtest.Values(salt, 1, shape...)
	return tensor.Map{"": d}.Scale(1 / d.Norm())[""]
}

func (m movesPrompts) Finish(l *method.Local, up *method.Upload) error {
	ctx := l.Received["ctx"].Clone()
	for _, salt := range []int{70, 71 + l.Task.Client} {
		ctx.Axpy(0.1, direction(salt, ctx.Shape))
	}
	up.Shared = tensor.Map{"ctx": ctx}
	return m.Method.Finish(l, up)
}

// The discriminator separates uploads from past averages within five rounds: over 16 tokens of width 512 that start
// with a standard deviation of 0.02 (a length of 1.8) and uploads that move by 0.14 a round, the loss of eq. 6 falls
// from 2 ln 2 = 1.386 below 1. In the first round the one past average is the mean of the uploads, so both are hard to
// separate. One step of plain gradient descent with rate 0.001 a round, on prompts that are not normalized, hardly
// changes loss and weights.
func TestDiscriminatorLearns(t *testing.T) {
	run := func(more methodtest.Options) (loss, moved float64) {
		o := methodtest.Options{"warmup": 0}
		for k, v := range more {
			o[k] = v
		}
		m := methodtest.Build(t, "fedappr", nil, o)
		var clients []*spec.Client
		wide := &methodtest.Toy{ID: "wide", Width: 512, Dim: 5}
		for k := range 10 {
			rows := methodtest.Rows(100+k, 2, 5, len(methodtest.Classes))
			clients = append(clients, &spec.Client{ID: k, Backbone: wide, Train: rows, Test: rows})
		}
		rec := trace.NewRecorder()
		r := enginetest.Run(t, &spec.Experiment{Method: movesPrompts{m},
			Classes: methodtest.Classes, Template: "a {}.",
			Clients: clients, Plan: spec.Plan{Rounds: 5, Seed: 5}, Training: spec.Training{Epochs: 1, Batch: 2,
				Optim: optim.Config{Name: "sgd", LR: 0.001}}}, engine.Settings{Client: client.Settings{Tracer: rec}})
		first := rec.Tensors["r0/c0/down/fedappr/w1"]
		gone := rec.Tensors["r4/down/fedappr/w1"].Clone()
		gone.Axpy(-1, first)
		return r.Records[4].Notes["discriminator_loss"], gone.Norm() / first.Norm()
	}
	if loss, moved := run(nil); loss > 1 || moved < 0.3 {
		t.Errorf("the loss is %.4f after five rounds, the weights moved by %.2f of their length", loss, moved)
	}
	before := methodtest.Options{"disc_optim": "sgd", "disc_norm": "none", "disc_steps": 1}
	if loss, moved := run(before); loss < 1.38 || moved > 1e-3 {
		t.Errorf("by the old default the loss is %.4f, the weights moved by %.2g of their length", loss, moved)
	}
}
