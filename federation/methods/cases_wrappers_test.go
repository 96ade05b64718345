package methods_test

import (
	"slices"

	"promptfed/federation/methodtest"
)

// withDraws adds the tensors that the steps, the turns and the merges of a method draw at random.
func withDraws(n methodtest.Names, step, turn, merge []string) methodtest.Names {
	n.Draw, n.TurnDraw = slices.Concat(n.Draw, step), slices.Concat(n.TurnDraw, turn)
	n.MergeDraw = slices.Concat(n.MergeDraw, merge)
	return n
}

// withWrapper adds a wrapper's tensors to those of a base method. A client keeps its state from its first round on.
func withWrapper(base, more methodtest.Names, kept, serverKept []string) methodtest.Names {
	n := base
	n.Broadcast, n.PerClient = slices.Concat(n.Broadcast, more.Broadcast), slices.Concat(n.PerClient, more.PerClient)
	n.Up, n.Later = slices.Concat(n.Up, more.Up), slices.Concat(n.Later, more.Later)
	n.State = func(round int) []string {
		var old []string
		if base.State != nil {
			old = base.State(round)
		}
		if round == 0 {
			return old
		}
		return slices.Concat(old, kept)
	}
	n.ServerState = func(round int) []string {
		if base.ServerState != nil {
			return slices.Concat(base.ServerState(round), serverKept)
		}
		return serverKept
	}
	return n
}

// prefixed returns prefix/NAME for every shared parameter.
func prefixed(n methodtest.Names, prefix string) []string {
	var out []string
	for _, name := range n.Shared {
		out = append(out, prefix+"/"+name)
	}
	return out
}

func scaffolded(n methodtest.Names) methodtest.Names {
	c := prefixed(n, "scaffold/c")
	return withWrapper(n, methodtest.Names{Broadcast: c, Up: prefixed(n, "scaffold/dc")}, c, nil)
}

func dynamic(n methodtest.Names) methodtest.Names {
	return withWrapper(n, methodtest.Names{}, prefixed(n, "dyn/h"), prefixed(n, "dyn/h"))
}

func adaptive(n methodtest.Names, v bool) methodtest.Names {
	kept := prefixed(n, "opt/m")
	if v {
		kept = append(kept, prefixed(n, "opt/v")...)
	}
	return withWrapper(n, methodtest.Names{}, nil, kept)
}

var protos = []string{"proto/mean", "proto/n"}

// tied are FedProto's names if backbones differ, like the toy's.
func tied(n methodtest.Names) methodtest.Names {
	return withWrapper(n, methodtest.Names{PerClient: protos, Up: protos}, nil, nil)
}

var (
	noDyn     = options{"alpha": 0.0, "weighting": "examples"}
	noOpt     = options{"kind": "momentum", "beta1": 0.0}
	noProto   = options{"lambda": 0.0}
	noMOON    = options{"mu": 0.0}
	noNTD     = options{"beta": 0.0}
	exactNull = pha(options{"projector": "exact-null"})
)

var with = methodtest.Merge

var short = options{"tokens": 3, "init_std": 0.4}

func init() {
	cases = append(cases,
		methodtest.Case{Name: "promptfl", With: []string{"scaffold"}, Options: short,
			Names: scaffolded(context)},
		methodtest.Case{Name: "promptfl", With: []string{"scaffold"}, Options: with(short,
			options{"control": "gradients", "server_lr": 0.5, "weighting": "examples"}),
			Names: scaffolded(context)},
		methodtest.Case{Name: "fedpha", With: []string{"scaffold"}, Options: exactNull,
			Names: scaffolded(two)},
		methodtest.Case{Name: "fedotp", With: []string{"scaffold"}, Options: short,
			Names: scaffolded(Entropic), NoDerivative: true},

		methodtest.Case{Name: "promptfl", With: []string{"feddyn"}, Options: with(short, options{"alpha": 0.5}),
			Zero: noDyn, Names: dynamic(context)},
		methodtest.Case{Name: "promptfl", With: []string{"feddyn"}, Options: with(short, options{
			"weighting": "examples"}), Zero: noDyn, Names: dynamic(context)},
		methodtest.Case{Name: "fedpha", With: []string{"feddyn"}, Options: exactNull, Zero: options{"feddyn": noDyn},
			Names: dynamic(two)},
		methodtest.Case{Name: "fedotp", With: []string{"feddyn"}, Options: short, Zero: noDyn,
			Names: dynamic(Entropic), NoDerivative: true},

		methodtest.Case{Name: "promptfl", With: []string{"fedopt"}, Options: short, Zero: noOpt,
			Names: adaptive(context, true)},
		methodtest.Case{Name: "promptfl", With: []string{"fedopt"}, Options: with(short, options{"kind": "momentum",
			"weighting": "uniform"}), Zero: noOpt,
			Names: adaptive(context, false)},
		methodtest.Case{Name: "fedpha", With: []string{"fedopt"}, Options: with(exactNull, options{"kind": "yogi"}),
			Zero: noOpt, Names: adaptive(two, true)},
		methodtest.Case{Name: "fedotp", With: []string{"fedopt"}, Options: with(short, options{"kind": "adagrad"}),
			Zero:  noOpt,
			Names: adaptive(Entropic, true), NoDerivative: true},

		methodtest.Case{Name: "promptfl", With: []string{"fedntd"}, Options: with(short, options{"beta": 0.7,
			"tau": 2.0}), Zero: noNTD, Names: context},
		methodtest.Case{Name: "fedotp", With: []string{"fedntd"}, Options: short, Zero: noNTD, Names: Entropic,
			NoDerivative: true},

		methodtest.Case{Name: "promptfl", With: []string{"moon"}, Options: short, Zero: noMOON, Names: context},
		methodtest.Case{Name: "promptfl", With: []string{"moon"}, Options: with(short, options{"mu": 5.0,
			"tau": 0.2}), Zero: noMOON, Names: context},
		methodtest.Case{Name: "fedpha", With: []string{"moon"}, Options: exactNull, Zero: noMOON, Names: two},
		methodtest.Case{Name: "fedotp", With: []string{"moon"}, Options: short, Zero: noMOON, Names: Entropic,
			NoDerivative: true},
		methodtest.Case{Name: "fedclip", With: []string{"moon"}, Zero: noMOON,
			Names: adapter, Alike: true},

		methodtest.Case{Name: "coop", With: []string{"fedproto"}, Options: with(short, options{"lambda": 2.0}),
			Zero: noProto, Names: tied(alone)},
		methodtest.Case{Name: "coop", With: []string{"fedproto"}, Options: with(short, options{
			"weighting": "uniform"}), Zero: noProto, Names: tied(alone)},
		methodtest.Case{Name: "promptfl", With: []string{"fedproto"}, Options: with(short, options{"lambda": 2.0}),
			Zero: noProto, Alike: true,
			Names: withWrapper(context, methodtest.Names{Broadcast: protos, Up: protos}, nil, nil)},
		methodtest.Case{Name: "fedpha", With: []string{"fedproto"}, Options: exactNull, Zero: noProto,
			Names: tied(two)},
		methodtest.Case{Name: "fedotp", With: []string{"fedproto"}, Options: short, Zero: noProto,
			Names: tied(Entropic), NoDerivative: true},
		methodtest.Case{Name: "fedclip", With: []string{"fedproto"}, Options: options{"of": "image"}, Zero: noProto,
			Alike: true, Names: withWrapper(adapter, methodtest.Names{Broadcast: protos, Up: protos}, nil, nil)},

		methodtest.Case{Name: "pfeddc", With: []string{"scaffold"}, Options: dc(nil),
			Names: scaffolded(dual)},
		methodtest.Case{Name: "pfeddc", With: []string{"feddyn"}, Options: dc(nil), Zero: noDyn, Names: dynamic(dual)},
		methodtest.Case{Name: "pfeddc", With: []string{"fedopt"}, Options: dc(nil), Zero: noOpt, Names: adaptive(dual,
			true)},
		methodtest.Case{Name: "pfeddc", With: []string{"fedntd"}, Options: dc(nil), Zero: noNTD, Names: dual},
		methodtest.Case{Name: "pfeddc", With: []string{"moon"}, Options: dc(nil), Zero: noMOON, Names: dual},
		methodtest.Case{Name: "pfeddc", With: []string{"fedproto"}, Options: dc(options{"of": "image", "lambda": 2.0}),
			Zero: noProto, Names: tied(dual)},

		methodtest.Case{Name: "promptfl", With: []string{"fedprox", "scaffold"}, Options: short,
			Names: scaffolded(context)},
		methodtest.Case{Name: "promptfl", With: []string{"moon", "feddyn"}, Options: short, Zero: noDyn,
			Names: dynamic(context)},
		methodtest.Case{Name: "promptfl", With: []string{"fedntd", "fedopt"}, Options: short, Zero: noOpt,
			Names: adaptive(context, true)},
		methodtest.Case{Name: "fedpha", With: []string{"fedproto", "fedprox"}, Options: exactNull,
			Zero: options{"mu": 0.0}, Names: tied(two)},
		methodtest.Case{Name: "promptfl", With: []string{"scaffold", "fedopt"}, Options: with(short,
			options{"fedopt": options{"server_lr": 0.1}}),
			Zero: options{"fedopt": noOpt}, Names: adaptive(scaffolded(context), true)},
		methodtest.Case{Name: "fedpha", With: []string{"feddyn", "moon"}, Options: exactNull, Zero: noMOON,
			Names: dynamic(two)},
		methodtest.Case{Name: "fedappr", With: []string{"scaffold", "moon"}, Options: options{"tokens": 2, "warmup": 0},
			Zero:  noMOON,
			Names: scaffolded(appr(0))},
		methodtest.Case{Name: "fedotp", With: []string{"fedproto", "fedntd"}, Options: short, Zero: noNTD,
			Names: tied(Entropic), NoDerivative: true},
	)
}
