package methods_test

import (
	"math"
	"slices"

	"promptfed/federation/methodtest"
)

// Federated prompt learners of the years 2024 and 2025.

var both = methodtest.Names{Shared: []string{"global"}, Private: []string{"local"}, Draw: []string{"dpfpl/v0"}}

var keyed = methodtest.Names{Shared: []string{"ctx", "query"}, Broadcast: []string{"apt/keys", "apt/domains"}}

// traits are attributes of the toy's classes.
var traits = map[string][]string{"ant": {"six legs", "feelers"}, "bee": {"wings", "a sting"},
	"cat": {"whiskers", "a tail"}, "dog": {"a snout", "paws"}}

// former names FedMVP's network, and the low-rank changes that it learns alone from the second round on.
func former(lora bool) (n methodtest.Names) {
	for _, layer := range []string{"proj", "q", "k", "v", "o", "ff/in", "ff/out"} {
		n.Shared = append(n.Shared, "former/"+layer+"/w", "former/"+layer+"/b")
	}
	for _, norm := range []string{"norm", "norm_kv", "ff/norm"} {
		n.Shared = append(n.Shared, "former/"+norm+"/gain", "former/"+norm+"/bias")
	}
	n.Reads = []string{"pixels"}
	if !lora {
		return n
	}
	network, changes := n.Shared, []string{"lora/q/a", "lora/q/b", "lora/k/a", "lora/k/b", "lora/v/a", "lora/v/b"}
	n.Shared, n.Broadcast = append(slices.Clone(network), changes...), []string{"mvp/lora"}
	n.Frozen = func(round, _ int) []string {
		if round == 0 {
			return changes
		}
		return network
	}
	return n
}

func init() {
	hands = append(append(append(hands, fplHands...), aptHands...), mvpHands...)
	noisy := []string{"dpfpl/u", "dpfpl/v"}
	flipping := drawing(former(true), []string{"mvp/flip"}, []string{"mvp/flip"}, nil)
	fpl := func(more options) options { return with(options{"tokens": 3, "rank": 2, "init_std": 0.4}, more) }
	cases = append(cases,
		// All of the gradient comes through factors of full rank: the stated one is the loss's.
		methodtest.Case{Name: "dpfpl", Options: fpl(options{"rank": 3, "clip": 0.0}), Names: both},
		methodtest.Case{Name: "dpfpl", Options: fpl(nil), Names: both, NoDerivative: true},
		methodtest.Case{Name: "dpfpl", Options: fpl(options{"clip": 0.1, "noise": 0.2, "noisy": "all", "steps": 4,
			"sign": "plus", "factor": 0.1, "orth_v": false, "weighting": "examples"}),
			Names:        drawing(both, append(noisy, "dpfpl/global"), nil, nil),
			NoDerivative: true},
		methodtest.Case{Name: "dpfpl", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: both,
			NoDerivative: true},
		methodtest.Case{Name: "dpfpl", With: []string{"dp"}, Options: fpl(options{"dpfpl": options{"clip": 0.2,
			"noise": 0.1}, "dp": options{"clip": 0.1, "noise": 0.2, "where": "client", "least": 0.5}}),
			Names: plus(drawing(both, noisy, of(both, "dp"), nil), methodtest.Names{Broadcast: []string{"dp/clients"}},
				nil, []string{"dp/released"}),
			Noised: true, NoDerivative: true},

		methodtest.Case{Name: "fedapt", Options: options{"tokens": 3, "init_std": 0.4}, Alike: true, Names: keyed},
		methodtest.Case{Name: "fedapt", Options: options{"tokens": 2, "init_std": 0.4, "domains": 2, "assign": "scores",
			"class_specific": true, "temp": 0.5, "weight": 0.3, "position": "front"}, Alike: true, Names: keyed},
		methodtest.Case{Name: "fedapt", With: []string{"fedprox"}, Options: options{"assign": "hard"},
			Zero: options{"mu": 0.0}, Alike: true, Names: keyed},

		methodtest.Case{Name: "fedmvp", Options: options{"heads": 2, "mult": 1, "attributes": traits}, Alike: true,
			Names: former(false)},
		// What low-rank changes learn, and when, is no derivative of the loss: the rest of the network is left alone.
		methodtest.Case{Name: "fedmvp", Options: options{"heads": 4, "mult": 2, "tokens": 1, "flip": "coin", "rank": 2,
			"lora_round": 2, "templates": []string{"a {}", "the {}."}}, Alike: true, Names: flipping,
			NoDerivative: true},
		methodtest.Case{Name: "fedmvp", With: []string{"fedprox"}, Options: options{"flip": "never", "mult": 1,
			"weighting": "examples"}, Zero: options{"mu": 0.0}, Alike: true, Names: former(false)},
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

// FedAPT from a prompt of 1/2 under keys of 1, which is PromptFL's 1 with twice its slope, and a query of zeros, which
// takes either domain for as likely: the loss of domains is ln 2, and the slopes of the row of a client's own domain
// are half of its images, of the other's minus that, all times the features' length, 2. Whatever the mix of equal keys
// is, a test is one with twice the mean prompt.
var aptHands = []methodtest.Hand{{Method: "fedapt", Options: options{"tokens": 1, "query_scale": 2.0, "weight": 3.0},
	LR: lr, First: map[string]float64{"ctx": 0.5, "query": 0, "apt/keys": 1}, Want: map[string]float64{
		"r0/c0/s0/loss": loss0(1) + 3*math.Ln2, "r0/c0/s0/grad/ctx": 2 * slope0(1), "r0/c1/s0/grad/ctx": 2 * slope1(1),
		"r0/c0/s0/grad/query#0": -3 * 0.6, "r0/c0/s0/grad/query#1": -3 * 0.8, "r0/c0/s0/grad/query#3": 3 * 0.8,
		"r0/c1/s0/grad/query#0": 3 * 0.8, "r0/merged/query#0": lr * 3 * (0.6 - 0.8) / 2, "r0/merged/ctx": aptMean,
		"r0/c0/eval/logits#0": (0.6 + 1.6*aptMean) / math.Hypot(1, 2*aptMean),
		"r1/c0/s0/grad/ctx":   2 * slope0(2*aptMean)}}}

var aptMean = 0.5 - lr*(slope0(1)+slope1(1))

// FedMVP from a network of zeros: norms of one number are 0, and so is what stands behind them, so that an image's
// token p is the sum of two biases, the attention's last and the last of all, which have one gradient. The features
// are (x, y+p), at the angle a with tan a = (y+p)/x, against the hand-written (1,±1)/√2 of both templates:
// two logits that differ by √2 sin a, and 1 - cos(a - a0) apart from the plain tower's, whose one pixel has no other
// side. da/dp is x/(x²+(y+p)²).
func mvpSlope(x, y, p, sign, alpha float64) (slope, loss float64) {
	a, turn := math.Atan2(y+p, x), x/(x*x+(y+p)*(y+p))
	off, z := a-math.Atan2(y, x), sign*math.Sqrt2*math.Sin(a)
	return (-sign*math.Sqrt2*math.Cos(a)/(1+math.Exp(z)) + alpha*math.Sin(off)) * turn,
		math.Log(1+math.Exp(-z)) + alpha*(1-math.Cos(off))
}

var (
	mvp0, mvpLoss0 = mvpSlope(0.6, 0.8, 0, 1, 3)
	mvp1, _        = mvpSlope(0.8, 0.6, 0, -1, 3)
	mvpMean        = -lr * (mvp0 + mvp1) / 2
	mvp2, mvpLoss2 = mvpSlope(0.6, 0.8, 2*mvpMean, 1, 3) // both biases moved
	mvpHands       = []methodtest.Hand{{Method: "fedmvp", Options: options{"heads": 1, "mult": 1, "tokens": 1,
		"alpha": 3.0, "templates": []string{"a {}", "the {}"}}, LR: lr, First: mvpFirst(), Want: map[string]float64{
		"r0/c0/s0/loss": mvpLoss0, "r0/c0/s0/grad/former/o/b": mvp0, "r0/c1/s0/grad/former/ff/out/b": mvp1,
		"r0/c0/s0/grad/former/q/w": 0, "r0/merged/former/o/b": mvpMean, "r1/c0/s0/loss": mvpLoss2,
		"r1/c0/s0/grad/former/o/b": mvp2}}}
)

// mvpFirst are zeros for all of the network.
func mvpFirst() map[string]float64 {
	out := map[string]float64{}
	for _, name := range former(false).Shared {
		out[name] = 0
	}
	return out
}
