package methods_test

import "promptfed/federation/methodtest"

var noRobust = options{"kind": "norm-clip", "clip": 0.0, "weighting": "examples"}

func robust(kind string, more options) options { return with(short, with(options{"kind": kind}, more)) }

func init() {
	cases = append(cases,
		methodtest.Case{Name: "promptfl", With: []string{"robust"}, Options: robust("median", nil), Zero: noRobust,
			Names: context},
		methodtest.Case{Name: "promptfl", With: []string{"robust"}, Options: robust("trimmed-mean",
			options{"trim": 0.3}), Zero: noRobust, Names: context},
		methodtest.Case{Name: "promptfl", With: []string{"robust"}, Options: robust("krum", options{"attackers": 0}),
			Zero: noRobust, Names: context},
		methodtest.Case{Name: "promptfl", With: []string{"robust"}, Options: robust("geometric-median", nil),
			Zero: noRobust, Names: context},
		methodtest.Case{Name: "fedpha", With: []string{"robust"}, Options: with(exactNull, options{"kind": "norm-clip",
			"clip": 0.01}), Zero: options{"robust": noRobust},
			Names: two},
		methodtest.Case{Name: "promptfl", With: []string{"scaffold", "robust"}, Options: with(short,
			options{"robust": options{"kind": "multi-krum", "attackers": 0}}),
			Zero: options{"robust": noRobust}, Names: scaffolded(context)},
		methodtest.Case{Name: "promptfl", With: []string{"fedopt", "robust"}, Options: with(short,
			options{"robust": options{"kind": "median"}}),
			Zero: options{"robust": noRobust}, Names: adaptive(context, true)},
	)
}
