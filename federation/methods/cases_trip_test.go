package methods_test

import (
	"promptfed/federation/methodtest"
)

var routed = methodtest.Names{Shared: []string{"experts"}, Broadcast: []string{"trip/keys"}, Reads: []string{"tokens"},
	Constant: []string{"trip/starts"}}

func init() {
	average := methodtest.Names{Broadcast: []string{"trip/average"}}
	beta := withWrapper(routed, average, nil, nil)
	beta.ServerState = func(int) []string { return []string{"trip/weight"} }
	o := func(more options) options { return with(options{"tokens": 2, "init_std": 0.4, "iters": 10}, more) }
	cases = append(cases,
		methodtest.Case{Name: "trip", Options: o(nil), Names: routed},
		methodtest.Case{Name: "trip", Options: o(options{"experts": 3, "capacity": 1.5, "keys": "normal",
			"position": "front", "templates": []string{"a {}", "the {}."}, "average": "beta"}), Names: beta},
		methodtest.Case{Name: "trip", Options: o(options{"experts": 2, "alpha": 0.0, "keys": "uniform",
			"average": "ema", "capacity_test": 1.0, "weighting": "uniform"}), Names: withWrapper(routed, average, nil,
			nil)},
		methodtest.Case{Name: "trip", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: routed},
	)
	averages = append(averages, averaging{"trip", nil, "examples"},
		averaging{"trip", options{"average": "beta", "weighting": "uniform"}, "uniform"})
}
