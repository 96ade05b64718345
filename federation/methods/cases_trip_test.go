package methods_test

import (
	"math"

	"promptfed/federation/methodtest"
)

var routed = methodtest.Names{Shared: []string{"experts"}, Broadcast: []string{"trip/keys"}, Reads: []string{"tokens"},
	Constant: []string{"trip/starts"}}

func init() {
	hands = append(hands, tripHands...)
	average := methodtest.Names{Broadcast: []string{"trip/average"}}
	beta := plus(routed, average, nil, nil)
	beta.ServerState = func(int) []string { return []string{"trip/weight"} }
	o := func(more options) options { return with(options{"tokens": 2, "init_std": 0.4, "iters": 10}, more) }
	cases = append(cases,
		methodtest.Case{Name: "trip", Options: o(nil), Names: routed},
		methodtest.Case{Name: "trip", Options: o(options{"experts": 3, "capacity": 1.5, "keys": "normal",
			"position": "front", "templates": []string{"a {}", "the {}."}, "average": "beta"}), Names: beta},
		methodtest.Case{Name: "trip", Options: o(options{"experts": 2, "alpha": 0.0, "keys": "uniform",
			"average": "ema", "capacity_test": 1.0, "weighting": "uniform"}), Names: plus(routed, average, nil, nil)},
		methodtest.Case{Name: "trip", With: []string{"fedprox"}, Zero: options{"mu": 0.0}, Names: routed},
	)
	averages = append(averages, averaging{"trip", nil, "examples"},
		averaging{"trip", options{"average": "beta", "weighting": "uniform"}, "uniform"})
}

// TRIP with one expert and no distillation is PromptFL. With two and keys of 1: the last tokens of an image, x, y and
// -1, make the clusters {x, y} and {-1}, at every capacity, and since the keys are equal the last cluster goes to the
// first of them. The weights are 1/3 and 2/3, and both experts of 1/2 mix to 1/2. Against the hand-written
// (1,±1)/√2, whose logits differ by √2 y, the distillation is ln(1+e^-z) + (1-q) z, q = 1/(1+e^(-√2 y)), with
// the slope 1/(1+e^-z) - q in z, and dz/dp is 2y/r³. An expert gets its weight's part of the slope.
func tripSlope(p, y float64) (slope, loss float64) {
	r := math.Hypot(1, p)
	z, q := 2*y*p/r, 1/(1+math.Exp(-math.Sqrt2*y))
	return (1/(1+math.Exp(-z)) - q) * 2 * y / (r * r * r), math.Log(1+math.Exp(-z)) + (1-q)*z
}

var (
	trip0, tripLoss0 = tripSlope(0.5, 0.8)
	trip1, _         = tripSlope(0.5, 0.6)
	tripSlope0       = slope0(0.5) + 3*trip0
	tripStep         = lr * (tripSlope0 + 2*(slope1(0.5)+3*trip1)) / 3 // of weight 1
	tripMix          = 0.5 - (1+4)*tripStep/9
	_, tripLoss2     = tripSlope(tripMix, 0.8)
	tripHands        = []methodtest.Hand{
		{Method: "trip", Options: options{"experts": 1, "tokens": 1, "alpha": 0.0}, LR: lr,
			First: map[string]float64{"experts": 0}, Want: map[string]float64{"r0/c0/s0/loss": math.Ln2,
				"r0/c0/upload/experts": 0.75, "r0/merged/experts": -0.125, "r1/c0/upload/experts": second0}},
		{Method: "trip", Options: options{"experts": 2, "tokens": 1, "alpha": 3.0, "keys": "normal",
			"templates": []string{"a {}"}}, LR: lr, First: map[string]float64{"experts": 0.5, "trip/keys": 1},
			Want: map[string]float64{"r0/c0/s0/loss": loss0(0.5) + 3*tripLoss0,
				"r0/c0/s0/grad/experts#0": tripSlope0 / 3, "r0/c0/s0/grad/experts#1": 2 * tripSlope0 / 3,
				"r0/merged/experts#0": 0.5 - tripStep/3, "r0/merged/experts#1": 0.5 - 2*tripStep/3,
				"r0/c0/eval/logits#0": (0.6 + 0.8*tripMix) / math.Hypot(1, tripMix),
				"r1/c0/s0/loss":       loss0(tripMix) + 3*tripLoss2}},
	}
)
