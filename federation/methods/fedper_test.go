package methods_test

import (
	stdcontext "context"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/engine/trace"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// runTraced runs rounds of a stack on three clients and gives its trace.
func runTraced(t *testing.T, name string, with []string, o options, rounds int, train spec.Training) tensor.Map {
	t.Helper()
	m, err := methods.Build(name, with, o)
	if err != nil {
		t.Fatal(err)
	}
	train.Batch = 4
	rec := trace.NewRecorder()
	_, err = engine.Run(stdcontext.Background(), &spec.Experiment{Method: m, Classes: methodtest.Classes,
		Template: "a photo of a {}.", Clients: methodtest.Alike(9, 5, 6), Plan: spec.Plan{Rounds: rounds, Seed: 5},
		Training: train}, engine.Settings{Tracer: rec})
	if err != nil {
		t.Fatal(err)
	}
	return rec.Tensors
}

var twoEpochs = spec.Training{Epochs: 2, Optim: optim.Config{Name: "sgd", LR: 0.2, Momentum: 0.9, WeightDecay: 0.01}}

// What becomes private starts on every client as the server would have sent it, drawn or set by the method's Start.
func TestPrivateParametersStartAsShared(t *testing.T) {
	for base, private := range map[string]string{"ivlp": "image/prompt", "fedclip": "adapter/2/w"} {
		before := runTraced(t, base, nil, nil, 1, twoEpochs)
		for _, wrapper := range []string{"fedper", "fedrep"} {
			after := runTraced(t, base, []string{wrapper}, options{"private": private}, 1, twoEpochs)
			for _, client := range []string{"r0/c0", "r0/c2"} {
				want, got := before["init/"+private], after[client+"/begin/"+private]
				if want.MaxAbs() == 0 || !slices.Equal(got.Data, want.Data) {
					t.Errorf("%s+%s: %s starts %s with other values than the server draws", base, wrapper, client,
						private)
				}
			}
			if after["init/"+private] != nil || after["r0/c0/upload/"+private] != nil {
				t.Errorf("%s+%s: %s travels", base, wrapper, private)
			}
		}
	}
}

// FedRep's first pass leaves shared parameters as they were to the last bit, also with momentum and weight decay, and
// its second the private ones; one over batches of 4 of 9 examples has three steps.
func TestFedRepTrainsOnePartAtATime(t *testing.T) {
	got := runTraced(t, "ivlp", []string{"fedrep"}, options{"private": "text"}, 1, twoEpochs)
	for _, c := range []struct {
		name, from, to string
		same           bool
	}{
		{"image/prompt", "begin", "s2/after", true}, {"text/prompt", "begin", "s2/after", false},
		{"image/prompt", "s2/after", "s5/after", false}, {"text/prompt", "s2/after", "s5/after", true},
	} {
		a, b := got["r0/c0/"+c.from+"/"+c.name], got["r0/c0/"+c.to+"/"+c.name]
		if slices.Equal(a.Data, b.Data) != c.same {
			t.Errorf("%s from %s to %s stayed: %v", c.name, c.from, c.to, !c.same)
		}
	}
}

func TestSplitsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		base    string
		with    []string
		options options
		want    string
	}{
		{"promptfl", []string{"fedper"}, options{"private": []string{}},
			"option private is empty; name what stays on clients, some of ctx"},
		{"promptfl", []string{"fedper"}, options{"private": "ctx"}, "leaves nothing of ctx to share"},
		{"cocoop", []string{"fedper"}, options{"private": "met"}, `names "met"; the base method shares ctx, meta/1/w`},
		{"coop", []string{"fedrep"}, options{"private": "ctx"}, `names "ctx"; the base method shares nothing`},
		{"ivlp", []string{"fedprox", "fedper"}, options{"private": "text"}, "list it before fedprox"},
		{"powder", []string{"fedper"}, options{"private": "pool/0"}, "needs more than the mean of uploads"},
	} {
		if _, err := methods.Build(c.base, c.with, c.options); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s%v%v: %v; want %q", c.base, c.with, c.options, err, c.want)
		}
	}
}
