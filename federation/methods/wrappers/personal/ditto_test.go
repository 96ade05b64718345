package personal_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/optim"
)

// The averaged model is the same to the last bit with and without a personal model.
func TestOwnModelsLeaveTheAveragedOne(t *testing.T) {
	for base, o := range map[string]methodtest.Options{"promptfl": {"tokens": 2}, "prograd": {"tokens": 2},
		"fedclip": {}} {
		bare := methodtest.Traced(t, base, nil, o, 3, methodtest.TwoEpochs)
		for _, wrapper := range []string{"ditto", "apfl"} {
			both := methodtest.Traced(t, base, []string{wrapper}, o, 3, methodtest.TwoEpochs)
			seen := 0
			for name, want := range bare {
				if !strings.Contains(name, "/upload/") && !strings.Contains(name, "/merged/") {
					continue
				}
				if seen++; !slices.Equal(both[name].Data, want.Data) {
					t.Errorf("%s+%s: %s is another", base, wrapper, name)
				}
			}
			if seen < 12 {
				t.Errorf("%s: only %d tensors compared", base, seen)
			}
		}
	}
}

// With lambda 0 or with a = 1 the personal model is that of local training alone, with all its rounds: equal to CoOp's,
// from the same start.
func TestOwnModelsByThemselves(t *testing.T) {
	o := methodtest.Options{"tokens": 2, "init_std": 0.0}
	alone := methodtest.Traced(t, "coop", nil, o, 3, methodtest.TwoEpochs)
	for wrapper, more := range map[string]methodtest.Options{"ditto": {"lambda": 0.0}, "apfl": {"alpha": 1.0}} {
		got := methodtest.Traced(t, "promptfl", []string{wrapper}, methodtest.Merge(o, more), 3, methodtest.TwoEpochs)
		want := alone["r2/c0/s5/after/ctx"]
		for i, v := range got["r2/c0/s5/after/"+wrapper+"/ctx"].Data {
			if math.Abs(float64(v-want.Data[i])) > 1e-6 {
				t.Errorf("%s: element %d is %v, alone %v", wrapper, i, v, want.Data[i])
			}
		}
	}
}

// A personal model over FedMVP freezes, as the averaged one, low-rank changes in round 0 and all others in round 1.
func TestOwnModelsAreFrozenAlike(t *testing.T) {
	o := methodtest.Options{"mult": 1, "lora_round": 2}
	for _, name := range []string{"ditto/lora/q/a", "apfl/lora/q/a", "ditto/former/proj/w", "apfl/former/proj/w"} {
		wrapper, _, _ := strings.Cut(name, "/")
		got := methodtest.Traced(t, "fedmvp", []string{wrapper}, o, 2, methodtest.TwoEpochs)
		for round, moves := range []bool{strings.Contains(name, "former"), strings.Contains(name, "lora")} {
			client := fmt.Sprintf("r%d/c0/", round)
			if slices.Equal(got[client+"begin/"+name].Data, got[client+"s5/after/"+name].Data) == moves {
				t.Errorf("%s in round %d moves: %v", name, round, !moves)
			}
		}
	}
}

// A pull that is strong relative to the rate keeps Ditto's personal model at the received parameters.
func TestDittoIsKeptNear(t *testing.T) {
	far := func(lambda float64) float64 {
		train := methodtest.TwoEpochs
		train.Optim.LR, train.Optim.Momentum = 1e-3, 0
		got := methodtest.Traced(t, "promptfl", []string{"ditto"}, methodtest.Options{"tokens": 2, "lambda": lambda}, 2,
			train)
		v := got["r1/c0/s5/after/ditto/ctx"].Clone()
		v.Axpy(-1, got["r0/merged/ctx"])
		return v.Norm()
	}
	if near, free := far(900), far(0); near > free/4 {
		t.Errorf("%g away from what was sent with lambda 900, %g with 0", near, free)
	}
}

func TestOwnModelsThatAreRefused(t *testing.T) {
	for stack, want := range map[string]string{"fedpha+ditto": "has private parameters already",
		"coop+apfl": "has private parameters already", "zeroshot+ditto": "shares nothing",
		"promptfl+fedprox+apfl": "keeps a copy of the base method's parameters; list it before fedprox",
		"fedappr+ditto":         "or choose a base method without it"} {
		layers := strings.Split(stack, "+")
		_, err := methods.Build(layers[0], layers[1:], nil)
		goldentest.WantErrorOf(t, stack, err, want)
	}
	bounded := &method.Local{Optim: optim.Config{ClipNorm: 1}, Scalars: map[string]float64{}}
	for _, wrapper := range []string{"ditto", "apfl"} {
		m := methodtest.Build(t, "promptfl", []string{wrapper}, nil)
		goldentest.WantErrorOf(t, wrapper, m.Begin(bounded), "train.clip_norm bounds the gradients")
	}
}
