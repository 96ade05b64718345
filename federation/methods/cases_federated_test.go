package methods_test

import "promptfed/federation/methodtest"

// Federated prompt learners of the years 2024 and 2025.

var both = methodtest.Names{Shared: []string{"global"}, Private: []string{"local"}}

func init() {
	hands = append(hands, fplHands...)
	fpl := func(more options) options { return with(options{"tokens": 3, "rank": 2, "init_std": 0.4}, more) }
	cases = append(cases,
		// All of the gradient comes through factors of full rank: the stated one is the loss's.
		methodtest.Case{Name: "dpfpl", Options: fpl(options{"rank": 3, "clip": 0.0}), Names: both},
		methodtest.Case{Name: "dpfpl", Options: fpl(nil), Names: both, NoDerivative: true},
		methodtest.Case{Name: "dpfpl", Options: fpl(options{"clip": 0.1, "noise": 0.2, "noisy": "all", "steps": 4,
			"sign": "plus", "factor": 0.1, "orth_v": false, "weighting": "examples"}), Names: both, NoDerivative: true},
		methodtest.Case{Name: "dpfpl", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: both,
			NoDerivative: true},
		methodtest.Case{Name: "dpfpl", With: []string{"dp"}, Options: fpl(options{"dpfpl": options{"clip": 0.2,
			"noise": 0.1}, "dp": options{"clip": 0.1, "noise": 0.2, "where": "client", "least": 0.5}}),
			Names:  plus(both, methodtest.Names{Broadcast: []string{"dp/clients"}}, nil, []string{"dp/released"}),
			Noised: true, NoDerivative: true},
	)
}

// DP-FPL from local prompts of 1/2 and -1/2 and a shared one of 0. In width 1 each factor is 1 or -1, so that the three
// terms of the rebuilt gradient are G or, clipped, ±C each: G + G - G, or (G + G + G)/10. Where v is local's own size,
// 1/2 of either sign, they are G/4, G and G/4.
var fplHands = []methodtest.Hand{
	{Method: "dpfpl", Options: options{"tokens": 1}, LR: lr, First: fplFirst, Want: map[string]float64{
		"r0/c0/s0/loss": loss0(0.5), "r0/c0/s0/grad/local": slope0(0.5), "r0/c1/s0/grad/local": slope1(-0.5),
		"r0/c0/upload/global": -lr * slope0(0.5), "r0/merged/global": fplMean,
		"r1/c0/begin/local": 0.5 - lr*slope0(0.5), "r1/c0/s0/loss": loss0(0.5 - lr*slope0(0.5) + fplMean)}},
	{Method: "dpfpl", Options: options{"tokens": 1, "clip": 0.01, "sign": "plus", "factor": 0.1}, LR: lr,
		First: fplFirst, Want: map[string]float64{"r0/c0/s0/grad/local": -0.003, "r0/c0/s0/grad/global": -0.01,
			"r0/c1/s0/grad/local": 0.003, "r0/merged/global": 0}},
	{Method: "dpfpl", Options: options{"tokens": 1, "sign": "plus", "orth_v": false, "weighting": "examples"}, LR: lr,
		First: fplFirst, Want: map[string]float64{"r0/c0/s0/grad/local": 1.5 * slope0(0.5),
			"r0/merged/global": -lr * (slope0(0.5) + 2*slope1(-0.5)) / 3}},
	// A step of length lr C for every client, and a mean of 0 that no noise was put on: the layer of the server's noise
	// with a clip of lr C cuts nothing.
	{Method: "dpfpl", With: []string{"dp"}, Options: options{"tokens": 1, "dpfpl": options{"clip": 0.01},
		"dp": options{"clip": 0.01 * lr, "noise": 0.0, "delta": 0.1}}, LR: lr, First: fplFirst,
		Want: map[string]float64{"r0/c0/upload/global": 0.01 * lr, "r0/merged/global": 0}},
}

var (
	fplFirst = map[string]float64{"global": 0, "c0/local": 0.5, "c1/local": -0.5}
	fplMean  = -lr * (slope0(0.5) + slope1(-0.5)) / 2
)
