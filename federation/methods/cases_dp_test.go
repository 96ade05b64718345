package methods_test

import "promptfed/federation/methodtest"

var noDP = options{"clip": 0.0, "noise": 0.0}

func init() {
	sent := methodtest.Names{Broadcast: []string{"dp/clients"}}
	spent := func(n methodtest.Names) methodtest.Names {
		return withWrapper(n, methodtest.Names{}, nil, []string{"dp/released"})
	}
	noisy := func(n methodtest.Names) methodtest.Names { return withDraws(n, nil, nil, prefixed(n, "dp")) }
	cases = append(cases,
		methodtest.Case{Name: "promptfl", With: []string{"dp"}, Options: with(short, options{"clip": 0.05,
			"noise": 0.3}), Zero: noDP, Names: noisy(spent(context))},
		methodtest.Case{Name: "promptfl", With: []string{"dp"}, Options: with(short, options{"clip": 0.05, "noise": 0.3,
			"where": "client", "least": 0.5}), Zero: noDP,
			Names:  withDraws(spent(withWrapper(context, sent, nil, nil)), nil, prefixed(context, "dp"), nil),
			Noised: true},
		methodtest.Case{Name: "fedpha", With: []string{"dp"}, Options: with(exactNull, options{"clip": 100.0,
			"noise": 0.0}), Zero: noDP, Names: two},
		methodtest.Case{Name: "promptfl", With: []string{"fedprox", "fedopt", "dp"}, Options: with(short,
			options{"dp": options{"noise": 0.1}}), Zero: noDP,
			Names: noisy(spent(adaptive(context, true)))},
		methodtest.Case{Name: "promptfl", With: []string{"dp"}, Options: with(short, options{"clip": 0.05, "noise": 0.1,
			"adapt": 0.5}), Zero: noDP,
			Names: withWrapper(withDraws(context, nil, nil, []string{"dp/ctx", "dp/clip"}), methodtest.Names{}, nil,
				[]string{"dp/clip", "dp/released"})},
		methodtest.Case{Name: "pfeddc", With: []string{"dp"}, Options: dc(options{"clip": 0.1}), Zero: noDP,
			Names: noisy(spent(dual))},
	)
}
