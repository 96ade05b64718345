package methods_test

import (
	"math"

	"promptfed/federation/methodtest"
)

// All of these are over PromptFL from 0, whose first steps end at 0.75 and -0.5625, with lr 0.9375.
const (
	end0, end1 = 0.75, -0.5625
	plain      = (end0 + end1) / 2   // 0.09375, the plain mean
	average    = (end0 + 2*end1) / 3 // -0.125, by examples
)

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

// MOON with mu 0.5, tau 0.5. Class scores (a+bp, a-bp)/r of an image (a,b) have the cosine
// (a²+b²pq)/√((a²+b²p²)(a²+b²q²)) between prompts p and q. In round 0 the last model is the received one: the
// term is mu ln 2 and has no slope. In round 1 client 0 starts from p = -0.125 and its last prompt is q = 0.75, with a
// = 0.6, b = 0.8; the cosine to the received model is 1 and has no slope there.
var (
	moonA     = 0.36 + 0.64*average*average
	moonB     = math.Sqrt(moonA * (0.36 + 0.64*end0*end0))
	moonCos   = (0.36 + 0.64*average*end0) / moonB
	moonSlope = 0.64 * (end0 - (0.36+0.64*average*end0)*average/moonA) / moonB
	moonTwo   = math.Log(1+math.Exp(-1.6*average/math.Hypot(1, average))) + 0.5*math.Log(1+math.Exp(2*(moonCos-1)))
	moonGrad  = slope0(average) + 0.5*2*moonSlope/(1+math.Exp(2*(1-moonCos)))
)

// FedProto with lambda 0.5: client 0 has class 0 alone and sends (1,0.75)/1.25 = (0.8,0.6), client 1 has class 1 and
// sends (1,0.5625)/r. In round 1 client 0 stands at p = -0.125; the squared distance of unit rows is 2(1 - cos), and
// half of it its mean over the two dimensions, with cos = (1+0.75p)/(1.25 r).
var (
	protoR     = math.Hypot(1, average)
	protoCos   = (1 + end0*average) / (1.25 * protoR)
	protoSlope = (end0 - (1+end0*average)*average/(protoR*protoR)) / (1.25 * protoR)
	protoCE    = math.Log(1 + math.Exp(-1.6*average/protoR))
	// The nearest prototype of (0.6,0.8): minus half the squared distances, 2-2·0.96 and 2-2(0.6+0.45)/r.
	nearest0 = -(1 - (0.6*0.8 + 0.8*0.6))
	nearest1 = -(1 - (0.6+0.8*0.5625)/math.Hypot(1, 0.5625))
)

func init() {
	zero := options{"tokens": 1, "init_std": 0}
	over := func(wrapper string, more options, want map[string]float64) methodtest.Hand {
		return methodtest.Hand{Method: "promptfl", With: []string{wrapper}, Options: with(zero, more), LR: lr,
			Want: want}
	}
	hands = append(hands,
		over("scaffold", nil, map[string]float64{
			"r0/c0/down/scaffold/c/ctx": 0, "r0/c0/upload/scaffold/dc/ctx": -0.8, "r0/c1/upload/scaffold/dc/ctx": 0.6,
			"r0/down/scaffold/c/ctx": -0.1, "r0/merged/ctx": plain, "r1/c0/kept/scaffold/c/ctx": -0.8,
			"r1/c0/s0/grad/ctx": control0 + 0.7, "r1/c1/s0/grad/ctx": control1 - 0.7, "r1/c0/upload/ctx": scaffold0,
			"r1/c0/upload/scaffold/dc/ctx": control0 + 0.8,
			"r1/down/scaffold/c/ctx":       -0.1 + (control0+0.8+control1-0.6)/2}),
		over("scaffold", options{"server_lr": 0.5, "strength": 0.0, "weighting": "examples"}, map[string]float64{
			"r0/merged/ctx": average / 2, "r1/c0/s0/grad/ctx": slope0(average / 2)}),
		over("feddyn", options{"alpha": 0.5}, map[string]float64{
			"r0/kept/dyn/h/ctx": -0.046875, "r0/merged/ctx": dynM, "r1/c0/kept/dyn/h/ctx": -0.375,
			"r1/c1/kept/dyn/h/ctx": 0.28125,
			"r1/c0/s0/loss":        math.Log(1+math.Exp(-1.6*dynM/math.Hypot(1, dynM))) + 0.375*dynM,
			"r1/c0/s0/grad/ctx":    slope0(dynM) + 0.375}),
		over("fedopt", options{"server_lr": 0.1, "tau": 0.0125}, map[string]float64{
			"r0/kept/opt/m/ctx": -0.0125, "r0/kept/opt/v/ctx": 0.00015625, "r0/merged/ctx": -0.05,
			"r1/c0/s0/grad/ctx": slope0(-0.05)}),
		over("fedopt", options{"kind": "adagrad", "server_lr": 1, "tau": 0.0125}, map[string]float64{
			"r0/kept/opt/v/ctx": 0.015625, "r0/merged/ctx": -1. / 11}),
		over("fedopt", options{"kind": "momentum"}, map[string]float64{
			"r0/kept/opt/m/ctx": average, "r0/merged/ctx": average, "r1/kept/opt/m/ctx": 0.9*average + move,
			"r1/merged/ctx": 1.9*average + move}),
		// Without the true one of two classes a single one is left: there is nothing to distil.
		over("fedntd", options{"beta": 3.0, "tau": 2.0}, map[string]float64{
			"r0/c0/s0/loss": math.Log(2), "r0/merged/ctx": average, "r1/c0/upload/ctx": second0}),
		over("moon", options{"mu": 0.5}, map[string]float64{
			"r0/c0/s0/loss": 1.5 * math.Log(2), "r0/c0/s0/grad/ctx": -0.8, "r1/c0/s0/loss": moonTwo,
			"r1/c0/s0/grad/ctx": moonGrad}),
		over("fedproto", options{"lambda": 0.5}, map[string]float64{
			"r0/c0/down/proto/n#0": 0, "r0/c0/s0/loss": math.Log(2), "r0/c0/upload/proto/mean#0": 0.8,
			"r0/c0/upload/proto/mean#1": 0.6,
			"r0/c0/upload/proto/n#1":    0, "r0/c1/upload/proto/mean#0": 0, "r0/c1/upload/proto/n#1": 2,
			"r0/down/proto/mean#3": 0.5625 / math.Hypot(1, 0.5625), "r0/down/proto/n#1": 2,
			"r1/c0/s0/loss": protoCE + 0.5*2*(1-protoCos), "r1/c0/s0/grad/ctx": slope0(average) - 0.5*2*protoSlope}),
		over("fedproto", options{"lambda": 0.5, "distance": "mean"}, map[string]float64{
			"r1/c0/s0/loss": protoCE + 0.5*(1-protoCos), "r1/c0/s0/grad/ctx": slope0(average) - 0.5*protoSlope}),
		over("fedproto", options{"test": "prototypes"}, map[string]float64{
			"r0/c0/eval/logits#0": nearest0, "r0/c0/eval/logits#1": nearest1}),
	)
}
