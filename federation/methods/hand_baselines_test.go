package methods_test

import (
	"math"

	"promptfed/federation/methodtest"
)

// All of these are over PromptFL from 0, whose first steps end at 0.75 and -0.5625; see hand_wrappers_test.go.

// FedNova with two steps of momentum 0.5: along a gradient of 1 they go 1 and 1.5 rates, so that a is 2.5 for both
// clients, as (τ-ρ(1-ρ^τ)/(1-ρ))/(1-ρ) gives too. The second gradient of client 0 adds half of its first,
// -0.8, of client 1 half of 0.6. Both uploads are the moves over 2.5, and the new prompt is FedAvg's.
var (
	nova0 = end0 - lr*(slope0(end0)-0.5*0.8)
	nova1 = end1 - lr*(slope1(end1)+0.5*0.6)
)

// FedNova over FedProx with mu 0.4 and two plain steps: along a gradient of 1 the second is 1-ημ = 0.625, so that
// a is 1.625.

// q-FedAvg with q 1: both losses are ln 2 at 0, the moves 0.75 and -0.5625, L is 1/lr and clients count 1 and 2:
// (0.75 - 2·0.5625) ln 2 over (0.75² + 2·0.5625²)/lr + 3 ln 2.
var qffl1 = (end0 + 2*end1) * math.Ln2 / ((end0*end0+2*end1*end1)/lr + 3*math.Ln2)

// Ditto with lambda 0.4 and two steps: v goes as FedProx's prompt does, to prox0, and w as without it.
//
// APFL with a = 0.5, alpha_lr 0.1 and two steps: the first takes w to 0.75 and v, whose gradient is half of that at
// their mix, to 0.375, and leaves a as it is since they were one. Their mix is 0.5625, where the second step has its
// slope.
var (
	ditto0 = end0 - lr*slope0(end0)
	ditto1 = end1 - lr*slope1(end1)
	dittoM = (ditto0 + 2*ditto1) / 3
	apflV  = 0.375 - lr*0.5*slope0(0.5625)
	apflA  = 0.5 - 0.1*(0.375-0.75)*slope0(0.5625)
	apflM  = apflA*apflV + (1-apflA)*ditto0
)

// FedAMP with mu 0.5: sigma is the one squared distance that there is, so that the other weighs exp(-1)/2. Client 0
// goes on from 0.75 and is pulled to its mixture.
var ampU0 = end0 + math.Exp(-1)/2*(end1-end0)

// pFedMoAP with one channel of two, the first, which is alike for both classes: the mixture adds the same to both
// scores, and half of the prompt's own is left. In round 0 there is nobody to mix with.
var (
	moapNone = map[string]float64{"ctx": 0}
	moapLoss = math.Log(1 + math.Exp(-0.8*average/math.Hypot(1, average)))
)

// FedPer and FedRep over CoCoOp with a hidden unit that is off, so that a prompt is ctx and the bias together, of which
// the bias stays private: both have PromptFL's gradient. FedPer's first steps take both of client 0 to 0.75, and the
// next round starts from the averaged ctx and the client's own bias. FedRep's first pass takes the bias there alone,
// and the second ctx from its slope at 0.75.
var (
	conditioned = map[string]float64{"ctx": 0, "meta/1/b": -10, "meta/2/w": 0, "c0/meta/2/b": 0, "c1/meta/2/b": 0}
	rep0, rep1  = -lr * slope0(end0), -lr * slope1(end1)
	repM        = (rep0 + 2*rep1) / 3
)

func init() {
	bias := options{"tokens": 1, "private": "meta/2/b"}
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
		methodtest.Hand{Method: "pfedmoap", Options: options{"tokens": 1, "experts": 2, "gating_dim": 1, "heads": 1},
			LR: lr, First: moapNone, Want: map[string]float64{"r0/c0/s0/loss": math.Ln2, "r0/c0/s0/grad/ctx": -0.8,
				"r0/c1/down/moap/known": 0, "r0/merged/ctx": average, "r0/kept/moap/1": end1,
				"r1/c0/down/moap/known": 1, "r1/c0/down/moap/experts": end1, "r1/c0/s0/loss": moapLoss}},
		methodtest.Hand{Method: "promptfl", With: []string{"fedamp"}, Options: with(zero, options{"mu": 0.5}), LR: lr,
			Want: map[string]float64{"r0/c0/s0/grad/ctx": -0.8, "r0/merged/ctx": average, "r0/kept/amp/1/ctx": end1,
				"r1/c0/down/amp/u/ctx": ampU0, "r1/c0/begin/ctx": end0,
				"r1/c0/s0/loss":     loss0(end0) + 0.25*(end0-ampU0)*(end0-ampU0),
				"r1/c0/s0/grad/ctx": slope0(end0) + 0.5*(end0-ampU0)}},
		methodtest.Hand{Method: "cocoop", With: []string{"fedper"}, Options: bias, LR: lr, First: conditioned,
			Want: map[string]float64{"r0/merged/ctx": average, "r1/c0/begin/meta/2/b": end0,
				"r1/c0/s0/loss": loss0(average + end0), "r1/c0/s0/grad/ctx": slope0(average + end0)}},
		methodtest.Hand{Method: "cocoop", With: []string{"fedrep"}, Options: bias, LR: lr, Epochs: 2,
			First: conditioned, Want: map[string]float64{"r0/c0/s0/after/ctx": 0,
				"r0/c0/s1/after/meta/2/b": end0, "r0/c0/upload/ctx": rep0,
				"r0/merged/ctx": repM, "r1/c0/s0/loss": loss0(repM + end0)}},
		methodtest.Hand{Method: "promptfl", With: []string{"ditto"}, Options: with(zero, options{"lambda": 0.4}),
			LR: lr, Epochs: 2, Want: map[string]float64{"r0/c0/s1/after/ditto/ctx": prox0, "r0/c0/upload/ctx": ditto0,
				"r0/merged/ctx": dittoM, "r0/c0/eval/logits#0": (0.6 + 0.8*prox0) / math.Hypot(1, prox0),
				"r1/c0/s0/grad/ditto/ctx": slope0(prox0) + 0.4*(prox0-dittoM), "r1/c0/s0/grad/ctx": slope0(dittoM)}},
		methodtest.Hand{Method: "promptfl", With: []string{"apfl"}, Options: with(zero, options{"alpha_lr": 0.1}),
			LR: lr, Epochs: 2, Want: map[string]float64{"r0/c0/s1/after/apfl/ctx": apflV, "r0/c0/upload/ctx": ditto0,
				"r1/c0/kept/apfl/a": apflA, "r0/c0/eval/logits#1": (0.6 - 0.8*apflM) / math.Hypot(1, apflM)}},
	)
}
