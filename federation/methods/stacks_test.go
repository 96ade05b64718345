package methods_test

import (
	stdcontext "context"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/busytest"
	"promptfed/runtime/optim"
)

// fitting lists options for the toy, whose prompts are 6 wide, under which two rounds use every part of a method.
var fitting = map[string]options{"fedtpg": {"heads": 2, "mult": 1}, "appr": {"warmup": 0}, "fedappr": {"warmup": 0}}

// stack runs two rounds of a base method and wrappers with their defaults, or returns the reason of their refusal.
func stack(base string, with ...string) error {
	o := options{}
	for _, name := range append([]string{base}, with...) {
		if fitting[name] != nil {
			o[name] = fitting[name]
		}
	}
	m, err := methods.Build(base, with, o)
	if err != nil {
		return err
	}
	_, err = engine.Run(stdcontext.Background(), &spec.Experiment{Method: m, Classes: methodtest.Classes,
		Template: "a photo of a {}.",
		Clients:  methodtest.ClientsOfOneBackbone(4, 5), Plan: spec.Plan{Rounds: 2, Seed: 5},
		Training: spec.Training{Epochs: 1, Batch: 4, Optim: optim.Config{Name: "sgd", LR: 0.1}}},
		engine.Settings{Workers: 1})
	return err
}

// refused lists stacks that make no sense, each with words of the reason.
var refused = map[string]string{
	"coop+appr": "shares nothing", "coop+feddyn": "shares nothing", "coop+fedopt": "shares nothing",
	"coop+moon":     "shares nothing",
	"coop+scaffold": "shares nothing", "zeroshot+fedopt": "shares nothing", "zeroshot+fedntd": "learns nothing",
	"zeroshot+fedproto": "learns nothing",
	"fedappr+appr":      "has these terms already", "fedclip+appr": "needs a shared text prompt",
	"fedtpg+appr":          "and 13 more",
	"fedclip+fedproto":     "of: text needs a base method that changes text features",
	"fedpha+feddyn+fedopt": "keep one of the two", "fedpha+fedopt+feddyn": "keep one of the two",
	"fedpha+ggtpc+dp": "the statistics of ggtpc", "fedpha+fedproto+dp": "every client's prototypes",
	"fedappr+dp": "appr needs every client's prompt",
	"fedhpl+dp":  "shares nothing", "powder+dp": "weighting: examples", "fedpha+dp+robust": "dp must be the last",
	"fedpha+robust+dp":       "robust must be the last wrapper",
	"fedpha+robust+scaffold": "robust must be the last wrapper; scaffold outside it", "coop+robust": "shares nothing",
	"fedpha+feddyn+scaffold": "keep one of the two", "fedpha+scaffold+feddyn": "keep one of the two",
}

// reasons lists the reasons for which any other stack may be refused.
var reasons = []string{"does not exist in this base method", "shares nothing", "learns nothing",
	"needs a shared text prompt", "replace the server's averaging step", "decide where clients start a round",
	"or choose a base method without it", "the base method's server needs more than the mean of uploads",
	"the base method has private parameters already", "needs a base method that changes text features",
	"must be the last", "that would leave the clients without", "teacher would be the client's own private parameters",
	"fit labels by a loss of their own", "clients upload directions", "only if fedprox is listed before it"}

// Every wrapper runs over every base method, and every pair of wrappers over FedPHA (over PromptFL if FedNTD is one of
// them, which FedPHA's private scores refuse), or is refused with its reason. Without PROMPTFED_TEST_SOAK (make soak),
// a sixth of the stacks runs, in which each wrapper meets a sixth of the methods and of the other wrappers.
func TestStacks(t *testing.T) {
	var bases, wrappers []string
	for _, e := range methods.Table() {
		if e.Wrapper() {
			wrappers = append(wrappers, e.Name)
		} else {
			bases = append(bases, e.Name)
		}
	}
	try := func(place int, layers ...string) {
		name := strings.Join(layers, "+")
		if !busytest.Part(place, 6) && refused[name] == "" {
			return
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := stack(layers[0], layers[1:]...)
			if reason := refused[name]; reason != "" && (err == nil || !strings.Contains(err.Error(), reason)) {
				t.Errorf("%v; want %q", err, reason)
			} else if reason == "" && err != nil && !slices.ContainsFunc(reasons,
				func(r string) bool { return strings.Contains(err.Error(), r) }) {
				t.Error(err)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
	for i, c := range bases { // stacks of one base, of which many have equal graphs, are neighbours
		for j, a := range wrappers {
			try(i+j, c, a)
		}
	}
	for i, a := range wrappers {
		for j, b := range wrappers {
			switch {
			case a == b:
			case a == "fedntd" || b == "fedntd":
				try(i+j, "promptfl", a, b)
			default:
				try(i+j, "fedpha", a, b)
			}
		}
	}
}
