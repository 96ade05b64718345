package methods_test

import (
	"math"

	"promptfed/federation/methodtest"
)

// All of these are over PromptFL from 0, whose first steps end at 0.75 and -0.5625; see hand_wrappers_test.go.

// FedNova with two steps of momentum 0.5: along a gradient of 1 they go 1 and 1.5 rates, so that a is 2.5 for both
// clients, as (τ-ρ(1-ρ^τ)/(1-ρ))/(1-ρ) gives too. The second gradient of client 0 adds half of its first, -0.8, of
// client 1 half of 0.6. Both uploads are the moves over 2.5, and the new prompt is FedAvg's.
var (
	nova0 = end0 - lr*(slope0(end0)-0.5*0.8)
	nova1 = end1 - lr*(slope1(end1)+0.5*0.6)
)

// FedNova over FedProx with mu 0.4 and two plain steps: along a gradient of 1 the second is 1-ημ = 0.625, so that a is
// 1.625.

// q-FedAvg with q 1: both losses are ln 2 at 0, the moves 0.75 and -0.5625, L is 1/lr and clients count 1 and 2:
// (0.75 - 2·0.5625) ln 2 over (0.75² + 2·0.5625²)/lr + 3 ln 2.
var qffl1 = (end0 + 2*end1) * math.Ln2 / ((end0*end0+2*end1*end1)/lr + 3*math.Ln2)

func init() {
	zero := options{"tokens": 1, "init_std": 0}
	hands = append(hands,
		methodtest.Hand{Method: "promptfl", With: []string{"fednova"}, Options: zero, LR: lr, Epochs: 2, Momentum: 0.5,
			Want: map[string]float64{"r0/c0/upload/nova/a": 2.5, "r0/c0/upload/ctx": nova0 / 2.5,
				"r0/c1/upload/ctx": nova1 / 2.5, "r0/merged/ctx": (nova0 + 2*nova1) / 3}},
		methodtest.Hand{Method: "promptfl", With: []string{"fedprox", "fednova"}, Options: with(zero,
			options{"mu": 0.4}), LR: lr, Epochs: 2,
			Want: map[string]float64{"r0/c1/upload/nova/a": 1.625, "r0/c0/upload/ctx": prox0 / 1.625}},
		methodtest.Hand{Method: "promptfl", With: []string{"qffl"}, Options: with(zero, options{"q": 1.0}), LR: lr,
			Want: map[string]float64{"r0/c0/upload/qffl/loss": math.Ln2, "r0/merged/ctx": qffl1,
				"r1/c0/upload/qffl/loss": math.Log(1 + math.Exp(-1.6*qffl1/math.Hypot(1, qffl1)))}},
	)
}
