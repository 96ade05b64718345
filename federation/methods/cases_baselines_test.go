package methods_test

import (
	"fmt"
	"math"

	"promptfed/federation/methodtest"
)

// withReport adds a number that clients upload.
func withReport(n methodtest.Names, name string) methodtest.Names {
	return withWrapper(n, methodtest.Names{Up: []string{name}}, nil, nil)
}

// withPrivateCopies adds a private copy of every shared parameter.
func withPrivateCopies(n methodtest.Names, prefix string) methodtest.Names {
	n.Private = prefixed(n, prefix)
	return n
}

// withFedAMP adds the parameters that FedAMP keeps on the server, of all four clients of the suite, and sends.
func withFedAMP(n methodtest.Names) methodtest.Names {
	var last []string
	for k := range 4 {
		last = append(last, prefixed(n, fmt.Sprint("amp/", k))...)
	}
	return withWrapper(n, methodtest.Names{Later: prefixed(n, "amp/u")}, prefixed(n, "amp/w"), last)
}

var gate = []string{"gate/q/w", "gate/q/b", "gate/k/w", "gate/k/b", "gate/v/w", "gate/v/b", "gate/o/w", "gate/o/b"}

// gated are pFedMoAP's names. In round 0 there are no other prompts to mix, and the gates do not change.
var gated = methodtest.Names{Shared: []string{"ctx"}, Private: gate,
	PerClient:   []string{"moap/experts", "moap/known", "moap/tested", "moap/tested_known"},
	ServerState: func(int) []string { return []string{"moap/0", "moap/1", "moap/2", "moap/3"} },
	Frozen: func(round, _ int) []string {
		if round == 0 {
			return gate
		}
		return nil
	}}

// withFirstPass adds a first pass over the data that trains private parameters only.
func withFirstPass(n methodtest.Names) methodtest.Names {
	n.Frozen = func(_, epoch int) []string {
		if epoch == 0 {
			return n.Shared
		}
		return n.Private
	}
	return n
}

var (
	noQFFL = options{"q": 0.0}
	noOwn  = options{"private": "none"}
)

func init() {
	cases = append(cases,
		// the server goes at most 10 (most) times the median work of 2.9 (2 steps of momentum 0.9) along uploads
		methodtest.Case{Name: "promptfl", With: []string{"fednova"}, Options: short, Noised: true, Reach: 29,
			Names: withReport(context, "nova/a")},
		methodtest.Case{Name: "fedpha", With: []string{"fedprox", "fednova"}, Options: with(exactNull, options{
			"mu": 0.3, "weighting": "uniform", "most": 0.0}), Noised: true, Reach: math.Inf(1),
			Names: withReport(two, "nova/a")},
		methodtest.Case{Name: "promptfl", With: []string{"qffl"}, Options: with(short, options{"q": 1.0}),
			Zero: noQFFL, Names: withReport(context, "qffl/loss")},
		methodtest.Case{Name: "fedotp", With: []string{"qffl"}, Options: with(short, options{
			"weighting": "uniform"}), Zero: noQFFL, Names: withReport(Entropic, "qffl/loss"), NoDerivative: true},
		methodtest.Case{Name: "ivlp", With: []string{"fedper"}, Options: options{"tokens": 2, "private": "image"},
			Zero: noOwn, Alike: true, Names: withPrivate(everyone, "image/")},
		methodtest.Case{Name: "fedclip", With: []string{"fedper"}, Options: options{"private": "adapter/2"},
			Zero: noOwn, Alike: true, Names: withPrivate(adapter, "adapter/2/")},
		methodtest.Case{Name: "cocoop", With: []string{"fedrep"}, Options: options{"reduce": 2,
			"private": []string{"meta/1", "meta/2/w"}}, Zero: noOwn, Alike: true, NoDerivative: true,
			Names: withFirstPass(withPrivate(conditional, "meta/1/", "meta/2/w"))},
		methodtest.Case{Name: "promptfl", With: []string{"ditto"}, Options: with(short, options{"lambda": 0.5}),
			Names: withPrivateCopies(context, "ditto")},
		methodtest.Case{Name: "prograd", With: []string{"ditto"}, Options: options{"tokens": 3,
			"ditto": options{"lambda": 1.0}},
			Names: withPrivateCopies(known, "ditto"), NoDerivative: true},
		methodtest.Case{Name: "promptfl", With: []string{"ditto", "fedprox"}, Options: short, Zero: options{"mu": 0.0},
			Names: withPrivateCopies(context, "ditto")},
		methodtest.Case{Name: "promptfl", With: []string{"apfl"}, Options: with(short, options{"alpha_lr": 0.5}),
			NoDerivative: true,
			Names:        withWrapper(withPrivateCopies(context, "apfl"), methodtest.Names{}, []string{"apfl/a"}, nil)},
		methodtest.Case{Name: "fedclip", With: []string{"apfl"}, Options: options{"alpha": 0.25}, Alike: true,
			NoDerivative: true, Names: withPrivateCopies(adapter, "apfl")},
		methodtest.Case{Name: "promptfl", With: []string{"fedamp"}, Options: short, Names: withFedAMP(context)},
		methodtest.Case{Name: "fedpha", With: []string{"fedamp"}, Options: with(exactNull,
			options{"fedamp": options{"mu": 0.5, "sigma": 2.0}}), Names: withFedAMP(two)},
		methodtest.Case{Name: "fedotp", With: []string{"fedamp", "moon"}, Options: short,
			Zero:  options{"moon": noMOON},
			Names: withFedAMP(Entropic), NoDerivative: true},
		methodtest.Case{Name: "pfedmoap", Options: options{"tokens": 2, "experts": 3, "heads": 1, "init_std": 0.4,
			"gating_dim": 2, "gating_lr": 0.2}, Names: gated},
	)
	averages = append(averages, []averaging{
		{"promptfl+fednova", nil, "every client's amount of work"},
		{"promptfl+qffl", nil, "set q: 0"},
		{"promptfl+qffl", options{"q": 0.0, "weighting": "uniform"}, "uniform"},
		{"promptfl+ditto", nil, "examples"}, {"promptfl+apfl", options{"alpha_lr": 1.0}, "examples"},
		{"pfedmoap", nil, "every client's own prompt"},
		{"promptfl+fedamp", nil, "every client's own parameters"},
		{"fedclip+fedper", options{"private": "adapter/2"}, "uniform"},
		{"fedclip+fedrep", options{"private": "adapter/2", "weighting": "examples"}, "examples"},
	}...)
}
