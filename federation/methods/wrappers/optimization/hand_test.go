package optimization_test

import (
	"math"
	"testing"

	"promptfed/federation/methods/wrappers/optimization"
	"promptfed/federation/methodtest"
)

type options = methodtest.Options

var zero = options{"tokens": 1, "init_std": 0}

const lr, average, end0, end1 = methodtest.HandLR, methodtest.EndMean, methodtest.End0, methodtest.End1

var slope0, slope1, prox0, with, over = methodtest.Slope0, methodtest.Slope1, methodtest.Prox0, methodtest.Merge,
	methodtest.OverPromptFL

// All of these are over PromptFL from 0, whose first steps end at 0.75 and -0.5625.

// FedNova with two steps of momentum 0.5: along a gradient of 1 they move by 1 and 1.5 rates, so a is 2.5 for both
// clients, equal to (τ-ρ(1-ρ^τ)/(1-ρ))/(1-ρ). The second gradient of client 0 adds half of its first, -0.8, that
// of client 1 half of 0.6. Both uploads are the moves over 2.5, and the new prompt is that of FedAvg.
var (
	nova0 = end0 - lr*(slope0(end0)-0.5*0.8)
	nova1 = end1 - lr*(slope1(end1)+0.5*0.6)
)

// FedNova over FedProx with mu 0.4 and two plain steps: along a gradient of 1 the second is 1-ημ = 0.625, so a is
// 1.625.

// q-FedAvg with q 1: both losses are ln 2 at 0, the moves 0.75 and -0.5625, L is 1/lr and clients count 1 and 2:
// (0.75 - 2·0.5625) ln 2 over (0.75² + 2·0.5625²)/lr + 3 ln 2.
var (
	qffl1 = (end0 + 2*end1) * math.Ln2 / ((end0*end0+2*end1*end1)/lr + 3*math.Ln2)
	prox1 = -0.5625 - lr*(slope1(-0.5625)+0.4*-0.5625)
)

const plain = (end0 + end1) / 2 // 0.09375, the plain mean

// SCAFFOLD: the moves over lr are the slopes, so c_0 = -0.8, c_1 = 0.6 and c = (-0.8+0.6)/2 = -0.1. From the plain mean
// client 0's gradient is its slope there + 0.8 - 0.1, and client 1's its slope - 0.6 - 0.1. Of one step the control
// variates are the plain slopes again: c_i+ = c_i - c + (g - c_i + c) = g.
var (
	control0, control1 = slope0(plain), slope1(plain)
	scaffold0          = plain - lr*(control0+0.7)
)

// FedDyn with alpha 0.5: h_0 = -0.5·0.75, h_1 = 0.5·0.5625 and h = (h_0+h_1)/2 = -0.046875; the plain mean less
// h/alpha is 0.1875. There the quadratic term is 0 and has no slope, and client 0's linear term is 0.375 w.
const dynM = plain + 0.046875/0.5

// FedOpt with the mean move d = -0.125: adam's m = 0.1 d = -0.0125 and v = 0.01 d², √v = 0.0125; with tau 0.0125 the
// step is -0.5, times 0.1. Yogi from v = 0 has the same v. Adagrad's v is d²: -0.0125/(0.125+0.0125) = -1/11.
// Momentum's m is d, and in the next round 0.9 d more than the next move.
var (
	momentum0 = average - lr*slope0(average)
	momentum1 = average - lr*slope1(average)
	move      = (momentum0+2*momentum1)/3 - average
)

var hands = []methodtest.HandExample{
	{Method: "promptfl", With: []string{"fedprox"}, Options: options{"tokens": 1, "init_std": 0, "mu": 0.4}, LR: lr,
		Epochs: 2,
		Want: map[string]float64{
			"r0/c0/s0/after/ctx": 0.75, "r0/c1/s0/after/ctx": -0.5625, // the penalty has no slope at its start
			"r0/c0/s1/loss":    math.Log(1+math.Exp(-1.6*0.6)) + 0.2*0.5625, // z = 1.6·0.75/1.25; 0.4/2·0.75²
			"r0/c0/upload/ctx": prox0, "r0/c1/upload/ctx": prox1, "r1/c0/begin/ctx": (prox0 + 2*prox1) / 3}},
	// Detached, the penalty is in the loss and the second step is plain.
	{Method: "promptfl", With: []string{"fedprox"}, Options: options{"tokens": 1, "init_std": 0, "mu": 0.4,
		"detached": true}, LR: lr, Epochs: 2,
		Want: map[string]float64{
			"r0/c0/s1/loss":    math.Log(1+math.Exp(-1.6*0.6)) + 0.2*0.5625,
			"r0/c0/upload/ctx": 0.75 - lr*slope0(0.75), "r0/c1/upload/ctx": -0.5625 - lr*slope1(-0.5625)}},
	{Method: "promptfl", With: []string{"fednova"}, Options: zero, LR: lr, Epochs: 2, Momentum: 0.5,
		Want: map[string]float64{"r0/c0/upload/nova/a": 2.5, "r0/c0/upload/ctx": nova0 / 2.5,
			"r0/c1/upload/ctx": nova1 / 2.5, "r0/merged/ctx": (nova0 + 2*nova1) / 3}},
	{Method: "promptfl", With: []string{"fedprox", "fednova"}, Options: with(zero,
		options{"mu": 0.4}), LR: lr, Epochs: 2,
		Want: map[string]float64{"r0/c1/upload/nova/a": 1.625, "r0/c0/upload/ctx": prox0 / 1.625}},
	// FedRep's second pass alone moves ctx, from a private bias that is then 0.75: CoCoOp's prompt is their sum.
	{Method: "cocoop", With: []string{"fedrep", "scaffold", "fednova"}, Options: options{"tokens": 1,
		"private": "meta/2/b", "control": "path"}, LR: lr, Epochs: 2,
		First: map[string]float64{"ctx": 0, "meta/1/b": -10, "meta/2/w": 0, "c0/meta/2/b": 0, "c1/meta/2/b": 0},
		Want:  map[string]float64{"r0/c0/upload/nova/a": 1, "r0/c0/upload/scaffold/dc/ctx": slope0(end0)}},
	{Method: "promptfl", With: []string{"qffl"}, Options: with(zero, options{"q": 1.0}), LR: lr,
		Want: map[string]float64{"r0/c0/upload/qffl/loss": math.Ln2, "r0/merged/ctx": qffl1,
			"r1/c0/upload/qffl/loss": math.Log(1 + math.Exp(-1.6*qffl1/math.Hypot(1, qffl1)))}},
	over("scaffold", nil, map[string]float64{
		"r0/c0/down/scaffold/c/ctx": 0, "r0/c0/upload/scaffold/dc/ctx": -0.8, "r0/c1/upload/scaffold/dc/ctx": 0.6,
		"r0/down/scaffold/c/ctx": -0.1, "r0/merged/ctx": plain, "r1/c0/kept/scaffold/c/ctx": -0.8,
		"r1/c0/s0/grad/ctx": control0 + 0.7, "r1/c1/s0/grad/ctx": control1 - 0.7, "r1/c0/upload/ctx": scaffold0,
		"r1/c0/upload/scaffold/dc/ctx": control0 + 0.8,
		"r1/down/scaffold/c/ctx":       -0.1 + (control0+0.8+control1-0.6)/2}),
	over("scaffold", options{"server_lr": 0.5}, map[string]float64{"r0/merged/ctx": plain / 2}),
	over("feddyn", options{"alpha": 0.5}, map[string]float64{
		"r0/kept/dyn/h/ctx": -0.046875, "r0/merged/ctx": dynM, "r1/c0/kept/dyn/h/ctx": -0.375,
		"r1/c1/kept/dyn/h/ctx": 0.28125,
		"r1/c0/s0/loss":        math.Log(1+math.Exp(-1.6*dynM/math.Hypot(1, dynM))) + 0.375*dynM,
		"r1/c0/s0/grad/ctx":    slope0(dynM) + 0.375}),
	over("feddyn", options{"alpha": 0.0}, map[string]float64{"r0/merged/ctx": plain}),
	over("fedopt", options{"server_lr": 0.1, "tau": 0.0125}, map[string]float64{
		"r0/kept/opt/m/ctx": -0.0125, "r0/kept/opt/v/ctx": 0.00015625, "r0/merged/ctx": -0.05,
		"r1/c0/s0/grad/ctx": slope0(-0.05)}),
	over("fedopt", options{"kind": "adagrad", "server_lr": 1, "tau": 0.0125}, map[string]float64{
		"r0/kept/opt/v/ctx": 0.015625, "r0/merged/ctx": -1. / 11}),
	over("fedopt", options{"kind": "momentum"}, map[string]float64{
		"r0/kept/opt/m/ctx": average, "r0/merged/ctx": average, "r1/kept/opt/m/ctx": 0.9*average + move,
		"r1/merged/ctx": 1.9*average + move}),
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, optimization.Methods, hands) }

// A term without weight is no part of the loss.
func TestTermsWithoutWeight(t *testing.T) {
	methodtest.CheckTermNames(t, "promptfl+fedprox", options{"mu": 0.0}, "cross entropy")
	methodtest.CheckTermNames(t, "promptfl+feddyn", options{"alpha": 0.0}, "cross entropy")
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, optimization.Methods) }
