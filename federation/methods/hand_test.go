package methods_test

import (
	"math"
	"slices"
	"testing"

	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
)

// The pencil's numbers. With r = √(1+p²) the unit features are (1,p)/r and (1,-p)/r, so that for an image (x,y) the
// two logits differ by z = 2yp/r, and dz/dp = 2y/r³. Client 0 (y = 0.8, class 0) has the loss ln(1+e^-z) with slope
// -1.6/r³ / (1+e^z), client 1 (y = 0.6, class 1) the loss ln(1+e^z) with slope 1.2/r³ / (1+e^-z). At p = 0 the slopes
// are -0.8 and 0.6.

func slope0(p float64) float64 {
	r := math.Sqrt(1 + p*p)
	return -1.6 / (r * r * r) / (1 + math.Exp(1.6*p/r))
}

func slope1(p float64) float64 {
	r := math.Sqrt(1 + p*p)
	return 1.2 / (r * r * r) / (1 + math.Exp(-1.2*p/r))
}

// lr moves client 0 from 0 to 0.75 and client 1 from 0 to -0.5625, whose mean by 1 and 2 examples is -0.125.
const lr = 0.9375

// From p = -0.125: client 0 goes to -0.125 - lr slope0(-0.125), client 1 likewise.
var (
	second0 = -0.125 - lr*slope0(-0.125)
	second1 = -0.125 - lr*slope1(-0.125)
)

// A second step of FedProx with mu 0.4 adds 0.4 (p - received), received being 0.
var (
	prox0 = 0.75 - lr*(slope0(0.75)+0.4*0.75)
	prox1 = -0.5625 - lr*(slope1(-0.5625)+0.4*-0.5625)
)

// FedPHA from global = 1 and local = 0. The shared prompt has rank 1 in width 1, so exact-null leaves nothing: the
// projected prompt is 0. Pull: the features of p and 0 are (1,±p)/r and (1,0), at a squared distance of 2-2/r for both
// classes, with slope 2p/r³; it is 0 at p = 0. Push: the features of local p and global q are at the distance
// d = √(2-2(1+pq)/(rs)), s = √(1+q²). At p = 0, q = 1: d² = 2-√2; with c = (1+pq)/(rs), dc/dp = q/s = 1/√2
// and dc/dq = -q/s³ = -1/(2√2), and dd = -dc/d. Push is alpha - d, so its slope is dc/d in each: with alpha = 1 it
// is active.
var (
	phaD     = math.Sqrt(2 - math.Sqrt2)
	local0   = -lr * (slope0(0) + 1/math.Sqrt2/phaD)
	local1   = -lr * (slope1(0) + 1/math.Sqrt2/phaD)
	global0  = 1 - lr*(slope0(1)-1/(2*math.Sqrt2)/phaD)
	global1  = 1 - lr*(slope1(1)-1/(2*math.Sqrt2)/phaD)
	globalM  = (global0 + 2*global1) / 3
	phaLoss0 = math.Log(2) + math.Log(1+math.Exp(-1.6/math.Sqrt2)) + (1 - phaD)
	// Round 1, client 0: local0 and globalM. The loss is both cross entropies, the pull 2-2/r and the push.
	phaR       = math.Hypot(1, local0)
	phaS       = math.Hypot(1, globalM)
	phaFar     = math.Sqrt(2 - 2*(1+local0*globalM)/(phaR*phaS))
	phaLossTwo = math.Log(1+math.Exp(-1.6*local0/phaR)) + math.Log(1+math.Exp(-1.6*globalM/phaS)) +
		2 - 2/phaR + math.Max(0, 1-phaFar)
)

// FedAPPR from ctx = 0.5 with w1 = 2, w2 = 1, lambda_a 0.3, lambda_r 0.2 and no warm-up. The discriminator's log-odds
// of a prompt p > 0 are 2p, of p < 0 are 0 (the ReLU). -log D = ln(1+e^-2p) has the slope -2/(1+e^2p). The proximal
// term is 0 at the received prompt. Client 1 has more examples, and 0.5 - lr·slope stays above 0 for both clients at
// lr 0.25.
const apprLR = 0.25

var (
	fool  = -2 / (1 + math.Exp(1))
	appr0 = 0.5 - apprLR*(slope0(0.5)+0.3*fool)
	appr1 = 0.5 - apprLR*(slope1(0.5)+0.3*fool)
	apprM = (appr0 + 2*appr1) / 3
	// One update of the discriminator, rate 0.1, pool {apprM}, uploads {appr0, appr1}: the loss
	// ln(1+e^-o(m)) + mean ln(1+e^o(u)) has the slopes -1/(1+e^o(m)) and 1/(1+e^-o(u))/2 in the odds o = w2 w1 p, whose
	// slopes are p w2 in w1 and p w1 in w2.
	past   = -1 / (1 + math.Exp(2*apprM))
	now0   = 1 / (1 + math.Exp(-2*appr0)) / 2
	now1   = 1 / (1 + math.Exp(-2*appr1)) / 2
	sum    = past*apprM + now0*appr0 + now1*appr1
	apprW1 = 2 - 0.1*sum*1
	apprW2 = 1 - 0.1*sum*2
	// Round 1, client 0 starts from apprM against the new discriminator.
	odds     = apprW1 * apprW2 * apprM
	apprTwo0 = apprM - apprLR*(slope0(apprM)-0.3*apprW1*apprW2/(1+math.Exp(odds)))
)

// FedOTP from global = local = 0 with top_percent 0.8. The one patch sends what it may and each prompt receives 0.4, so
// T is (0.4,0.4) and z = 0.4 (2y g/r_g + 2y p/r_p): both prompts start with the slope 0.4 slope0(0), or 0.4 slope1(0).
var (
	otp0     = 0.4 * 0.8 * lr
	otp1     = -0.4 * 0.6 * lr
	otpM     = (otp0 + 2*otp1) / 3
	otpR     = math.Hypot(1, otp0)
	otpS     = math.Hypot(1, otpM)
	otpZ     = 0.64 * (otp0/otpR + otpM/otpS)
	otpSlope = -0.64 / (1 + math.Exp(otpZ)) // of client 0 in p/r in round 1
)

// FedCLIP by cross entropy, from an adapter of zeros. The class features are (1,1)/√2 and (1,-1)/√2. With d the
// difference of the second layer's two biases, f' is (x, y e^d) made unit: at the angle θ with tan θ = y e^d / x, so
// that z = √2 sin θ and dz/dd = √2 sin θ cos²θ, d moving twice as fast as each bias. All weights keep the slope
// 0, since the hidden layer is 0.
func clipSlope(x, y, d, sign float64) (slope, loss float64) {
	angle := math.Atan2(y*math.Exp(d), x)
	z, dz := math.Sqrt2*math.Sin(angle), math.Sqrt2*math.Sin(angle)*math.Cos(angle)*math.Cos(angle)
	return -sign * dz / (1 + math.Exp(sign*z)), math.Log(1 + math.Exp(-sign*z))
}

var (
	clip0, _   = clipSlope(0.6, 0.8, 0, 1)
	clip1, _   = clipSlope(0.8, 0.6, 0, -1)
	clipM      = -lr * (clip0 + clip1) / 2 // of the second bias, with equal weights; the first is its opposite
	_, clipTwo = clipSlope(0.6, 0.8, 2*clipM, 1)
)

// FedPGP from sigma = 0 and u = v = 1, so that the full prompt f = sigma + uv is 1; mu 1, temperature 1/2. With
// features (1,±p)/r the cosines, equal for both classes, are far = (1+sf)/(r(s) r(f)) and, to the hand-written
// (1,±1)/√2, near = (1+s)/(√2 r(s)). At s = 0, f = 1 both are 1/√2: the term is ln 2, its slope half of 2(far' -
// near'). In f, far' is -f/r(f)³ = -1/(2√2); in s at fixed f, far' and near' are 1/√2 each. So sigma, u and v all
// have the slope of cross entropy at 1 less 1/(2√2).
var (
	pgp0, pgp1 = -lr * (slope0(1) - math.Sqrt2/4), -lr * (slope1(1) - math.Sqrt2/4) // sigma; u and v are 1 more
	pgpM       = (pgp0 + 2*pgp1) / 3
	pgpF       = pgpM + (1+pgp0)*(1+pgp0) // round 1, client 0
	pgpApart   = (1+pgpM*pgpF)/math.Hypot(1, pgpM)/math.Hypot(1, pgpF) - (1+pgpM)/math.Hypot(1, pgpM)/math.Sqrt2
	pgpLossTwo = math.Log(1+math.Exp(-1.6*pgpF/math.Hypot(1, pgpF))) + math.Log(1+math.Exp(2*pgpApart))
)

// FedTPG with one query, one head, weights of 0 but the attention's output weight of 1, and all biases 0. A layer norm
// over one number gives 0, so that queries and feed-forward layers say nothing but their last bias. Of the two names'
// features (1,±1)/√2 layer norm makes (0,0) and (tpgC,-tpgC); both weigh 1/2. The prompt is 0, its slope -0.8 and
// 0.6, and so the slope of the value, output and last biases; that of the value weights is ±tpgC/2 times it. The plain
// mean of both clients' first steps, lr 0.1 in the biases and ±lr 0.1 tpgC/2 in the value weights, gives the prompt
// tpgP.
var (
	tpgC = math.Sqrt2 / 2 / math.Sqrt(0.5+1e-5)
	tpgP = lr * 0.1 * (3 + tpgC*tpgC/2)
)

// Powder from two prompts of 0 and equal keys: each has half of the attention and so half of PromptFL's slope, and the
// two stay equal, so that keys have no slope. UOPP from 0: the expert is fully in doubt, so that the mixed logits are
// the general ones, which count twice, and doubt has no slope there; the expert learns from its own cross entropy.
var (
	general0, general1 = -2 * lr * slope0(0), -2 * lr * slope1(0)
	generalM           = (general0 + 2*general1) / 3
	// Tested on (0.6,0.8) with the expert 0.75 and the general average: the expert's logits are (0.6±0.8·0.75)/1.25.
	sure  = 1 / (1 + math.Exp(-1.6*0.6))
	doubt = -(sure*math.Log(sure) + (1-sure)*math.Log(1-sure)) / math.Ln2
	mixed = doubt*(0.6+0.8*generalM)/math.Hypot(1, generalM) + (1-doubt)*0.96
)

var hands = []methodtest.Hand{
	{Method: "powder", Options: options{"tokens": 1, "init_std": 0, "prompts": 2}, LR: lr,
		First: map[string]float64{"c0/keys": 1, "c1/keys": -1}, Want: map[string]float64{
			"r0/c0/s0/grad/pool/0": -0.4, "r0/c0/s0/grad/pool/1": -0.4, "r0/c1/s0/grad/pool/1": 0.3,
			"r0/c0/s0/grad/keys#1":      0,
			"r0/c0/upload/powder/use#0": 0.5, "r0/merged/pool/0": -0.0625,
			"r1/c0/s0/grad/pool/0": slope0(-0.0625) / 2}},
	{Method: "uopp", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": 3 * math.Log(2), "r0/c0/upload/general": general0, "r0/c0/s0/after/expert": 0.75,
		"r0/merged/general":  generalM,
		"r1/c1/begin/expert": -0.5625, "r0/c0/eval/logits#0": mixed}},
	{Method: "fedclip", Options: options{"loss": "ce"}, LR: lr,
		First: map[string]float64{"adapter/1/w": 0, "adapter/1/b": 0, "adapter/2/w": 0, "adapter/2/b": 0},
		Want: map[string]float64{
			"r0/c0/s0/loss": math.Log(1 + math.Exp(-math.Sqrt2*0.8)), "r0/c0/s0/grad/adapter/2/b#1": clip0,
			"r0/c0/s0/grad/adapter/2/b#0": -clip0,
			"r0/c1/s0/grad/adapter/2/b#1": clip1, "r0/c0/s0/grad/adapter/1/w#3": 0, "r0/merged/adapter/2/b#1": clipM,
			"r1/c0/s0/loss": clipTwo}},
	// One image in a batch has one text: there is nothing to tell apart.
	{Method: "fedclip", LR: lr, First: map[string]float64{"adapter/1/w": 0.5, "adapter/1/b": 1, "adapter/2/w": -2,
		"adapter/2/b": 0},
		Want: map[string]float64{"r0/c0/s0/loss": 0, "r1/c0/s0/loss": 0, "r0/c1/s0/loss": math.Log(2)}},
	// PromptFL's steps; client 0 remembers one image of class 0, client 1 two of class 1, which take all of its
	// attention.
	{Method: "pfedprompt", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Log(2), "r0/c0/upload/ctx": 0.75, "r0/merged/ctx": -0.125, "r1/c0/upload/ctx": second0,
		"r0/c0/eval/logits#0": 0.5 + 0.5/math.Sqrt(1.015625), "r0/c0/eval/logits#1": 0.7 / math.Sqrt(1.015625),
		"r0/c1/eval/logits#0": (0.8 - 0.075) / math.Sqrt(1.015625),
		"r0/c1/eval/logits#1": 0.5 + (0.8+0.075)/math.Sqrt(1.015625)}},
	{Method: "fedotp", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Log(2), "r0/c0/upload/global": otp0, "r0/c1/upload/global": otp1,
		"r0/c1/s0/after/local": otp1,
		"r0/merged/global":     otpM, "r1/c0/begin/local": otp0, "r1/c0/s0/loss": math.Log(1 + math.Exp(-otpZ)),
		"r1/c0/upload/global":  otpM - lr*otpSlope/(otpS*otpS*otpS),
		"r1/c0/s0/after/local": otp0 - lr*otpSlope/(otpR*otpR*otpR),
		"r0/c0/eval/logits#0":  0.4 * ((0.6+0.8*otp0)/otpR + (0.6+0.8*otpM)/otpS)}},
	// The hand-written prompts are (1,1) and (1,-1): client 0 scores (0.6+0.8)/√2 and (0.6-0.8)/√2.
	{Method: "zeroshot", LR: lr, Want: map[string]float64{
		"r0/c0/eval/logits#0": 1.4 / math.Sqrt2, "r0/c0/eval/logits#1": -0.2 / math.Sqrt2,
		"r1/c1/eval/logits#1": 0.2 / math.Sqrt2}},
	{Method: "promptfl", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Log(2), "r0/c0/s0/grad/ctx": -0.8, "r0/c1/s0/grad/ctx": 0.6,
		"r0/c0/upload/ctx": 0.75, "r0/c1/upload/ctx": -0.5625, "r0/merged/ctx": -0.125,
		// The average scores client 0's image (0.6,0.8): (0.6-0.1)/r and (0.6+0.1)/r with r = √(1+1/64).
		"r0/c0/eval/logits#0": 0.5 / math.Sqrt(1.015625), "r0/c0/eval/logits#1": 0.7 / math.Sqrt(1.015625),
		"r1/c0/begin/ctx": -0.125, "r1/c0/upload/ctx": second0, "r1/merged/ctx": (second0 + 2*second1) / 3}},
	// The server's step on client 0's example is client 0's own first one.
	{Method: "gptfl", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Synthetic: 1, Want: map[string]float64{
		"init/ctx": 0.75, "r0/c0/begin/ctx": 0.75, "r0/c0/upload/ctx": 0.75 - lr*slope0(0.75),
		"r0/c1/upload/ctx": 0.75 - lr*slope1(0.75)}},
	{Method: "coop", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/after/ctx": 0.75, "r1/c0/begin/ctx": 0.75, "r1/c0/s0/after/ctx": 0.75 - lr*slope0(0.75),
		"r0/c1/s0/after/ctx": -0.5625, "r1/c1/s0/after/ctx": -0.5625 - lr*slope1(-0.5625)}},
	{Method: "promptfl", With: []string{"fedprox"}, Options: options{"tokens": 1, "init_std": 0, "mu": 0.4}, LR: lr,
		Epochs: 2,
		Want: map[string]float64{
			"r0/c0/s0/after/ctx": 0.75, "r0/c1/s0/after/ctx": -0.5625, // the penalty has no slope where it starts
			"r0/c0/s1/loss":    math.Log(1+math.Exp(-1.6*0.6)) + 0.2*0.5625, // z = 1.6·0.75/1.25; 0.4/2·0.75²
			"r0/c0/upload/ctx": prox0, "r0/c1/upload/ctx": prox1, "r1/c0/begin/ctx": (prox0 + 2*prox1) / 3}},
	// Detached, the penalty is in the loss and the second step is plain.
	{Method: "promptfl", With: []string{"fedprox"}, Options: options{"tokens": 1, "init_std": 0, "mu": 0.4,
		"detached": true}, LR: lr, Epochs: 2,
		Want: map[string]float64{
			"r0/c0/s1/loss":    math.Log(1+math.Exp(-1.6*0.6)) + 0.2*0.5625,
			"r0/c0/upload/ctx": 0.75 - lr*slope0(0.75), "r0/c1/upload/ctx": -0.5625 - lr*slope1(-0.5625)}},
	{Method: "fedpha", Options: options{"global_tokens": 1, "local_tokens": 1, "projector": "exact-null", "ratio": 1},
		LR:    lr,
		First: map[string]float64{"global": 1, "c0/local": 0, "c1/local": 0}, Want: map[string]float64{
			"r0/c0/s0/draw/projector": 0, "r0/c0/s0/loss": phaLoss0,
			"r0/c0/s0/after/local": local0, "r0/c0/s0/after/global": global0,
			"r0/c1/s0/after/local": local1, "r0/c1/s0/after/global": global1,
			"r0/merged/global": globalM, "r1/c0/begin/local": local0, "r1/c1/begin/local": local1,
			"r1/c0/begin/global": globalM,
			"r1/c0/s0/loss":      phaLossTwo}},
	// SDFed's definition 1 keeps the columns after floor(0.6·1) = 0, all of them: the projected prompt is the private
	// one and there is no pull. Push is alpha - d with alpha = 0.8 > d.
	{Method: "sdfed", Options: options{"global_tokens": 1, "local_tokens": 1, "projector": "def1"}, LR: lr,
		First: map[string]float64{"global": 1, "c0/local": 0, "c1/local": 0}, Want: map[string]float64{
			"r0/c0/s0/draw/projector": 1, "r0/c0/s0/loss": phaLoss0 - 0.2,
			"r0/c0/s0/after/local": local0, "r0/c1/s0/after/global": global1, "r0/merged/global": globalM,
			"r1/c0/s0/loss": phaLossTwo - (2 - 2/phaR) - math.Max(0, 1-phaFar) + math.Max(0, 0.8-phaFar)}},
	{Method: "fedappr", Options: options{"tokens": 1, "hidden": 1, "warmup": 0, "lambda_a": 0.3, "lambda_r": 0.2,
		"disc_lr":    0.1,
		"disc_optim": "sgd", "disc_norm": "none", "disc_steps": 1},
		LR: apprLR, First: map[string]float64{"ctx": 0.5, "fedappr/w1": 2, "fedappr/w2": 1}, Want: map[string]float64{
			"r0/c0/upload/ctx": appr0, "r0/c1/upload/ctx": appr1, "r0/merged/ctx": apprM,
			"r0/kept/fedappr/pool/000000": apprM,
			"r0/down/fedappr/w1":          apprW1, "r0/down/fedappr/w2": apprW2, "r1/c0/upload/ctx": apprTwo0,
			// Tested with its own prompt, not with the average: (0.6+0.8p)/r.
			"r0/c0/eval/logits#0": (0.6 + 0.8*appr0) / math.Hypot(1, appr0)}},
	{Method: "fedpgp", Options: options{"tokens": 1, "rank": 1}, LR: lr,
		First: map[string]float64{"sigma": 0, "c0/u": 1, "c0/v": 1, "c1/u": 1, "c1/v": 1}, Want: map[string]float64{
			"r0/c0/s0/loss":      math.Log(1+math.Exp(-1.6/math.Sqrt2)) + math.Ln2,
			"r0/c0/upload/sigma": pgp0, "r0/c1/upload/sigma": pgp1, "r0/merged/sigma": pgpM, "r1/c0/begin/u": 1 + pgp0,
			"r1/c1/begin/v":       1 + pgp1,
			"r0/c0/eval/logits#0": (0.6 + 0.8*pgpF) / math.Hypot(1, pgpF), "r1/c0/s0/loss": pgpLossTwo}},
	{Method: "fedtpg", Options: options{"tokens": 1, "heads": 1, "mult": 1, "classes": "all"}, LR: lr,
		First: map[string]float64{
			"generator/cross/q/w": 0, "generator/cross/k/w": 0, "generator/cross/v/w": 0, "generator/cross/o/w": 1,
			"generator/cross/ff/in/w": 0, "generator/cross/ff/in/b": 0, "generator/cross/ff/out/w": 0,
			"generator/cross/ff/out/b": 0},
		Want: map[string]float64{
			"init/generator/cross/norm_kv/gain#1": 1, "r0/c0/s0/loss": math.Ln2,
			"r0/c0/upload/generator/cross/o/b": 0.8 * lr, "r0/c1/upload/generator/cross/ff/out/b": -0.6 * lr,
			"r0/c0/upload/generator/cross/v/w#1": -0.8 * lr * tpgC / 2, "r0/merged/generator/cross/v/b": 0.1 * lr,
			"r0/c0/eval/logits#0": (0.6 + 0.8*tpgP) / math.Hypot(1, tpgP),
			"r1/c0/s0/loss":       math.Log(1 + math.Exp(-1.6*tpgP/math.Hypot(1, tpgP)))}},
	// Client 0 has examples of class 0 only: against its own classes there is nothing to lose.
	{Method: "fedtpg", Options: options{"tokens": 1, "heads": 1, "mult": 1}, LR: lr,
		First: map[string]float64{"generator/cross/v/w": 1, "generator/cross/o/w": 1,
			"generator/cross/q/w": 3, "generator/cross/q/b": 2, "generator/cross/k/w": 1,
			"generator/cross/ff/out/b": 0.5,
			"generator/cross/v/b":      0.25,
			"generator/cross/ff/in/w":  0, "generator/cross/ff/in/b": 0},
		Want: map[string]float64{"r0/c0/s0/loss": 0, "r0/c1/s0/loss": 0, "r0/merged/generator/cross/o/b": 0,
			// Its prompt looks at its own name alone, whose features are equal and so 0: 1/4 + 1/2.
			"r0/c0/eval/logits#0": (0.6 + 0.8*0.75) / 1.25}},
	{Method: "fedtpg", Options: options{"tokens": 1, "heads": 1, "mult": 1, "test": "own"}, LR: lr,
		First: map[string]float64{"generator/cross/v/w": 0,
			"generator/cross/ff/in/w": 0, "generator/cross/ff/in/b": 0, "generator/cross/ff/out/b": 0.75},
		Want: map[string]float64{"r0/c0/s0/loss": 0, "r0/c0/eval/logits#0": (0.6 + 0.8*0.75) / 1.25,
			"r0/c0/eval/logits#1": -1e9, "r0/c1/eval/logits#0": -1e9}},
	{Method: "promptfl", With: []string{"appr"}, Options: options{"tokens": 1, "hidden": 1, "warmup": 0,
		"lambda_a": 0.3, "lambda_r": 0.2,
		"disc_lr": 0.1, "disc_optim": "sgd", "disc_norm": "none", "disc_steps": 1, "view": "base"},
		LR: apprLR, First: map[string]float64{"ctx": 0.5, "fedappr/w1": 2, "fedappr/w2": 1}, Want: map[string]float64{
			"r0/c1/upload/ctx": appr1, "r0/kept/fedappr/pool/000000": apprM, "r0/down/fedappr/w1": apprW1,
			"r0/down/fedappr/w2": apprW2,
			"r1/c0/upload/ctx":   apprTwo0, "r0/c0/eval/logits#0": (0.6 + 0.8*apprM) / math.Hypot(1, apprM)}},
	// The uploads are 0.75 and -0.5625. The median of two is their mean, 0.09375, from which client 0 goes on; moves of
	// at most 0.5 are 0.5 and -0.5, which by 1 and 2 examples give -1/6.
	{Method: "promptfl", With: []string{"robust"}, Options: options{"tokens": 1, "init_std": 0, "kind": "median"},
		LR: lr, Want: map[string]float64{
			"r0/c0/upload/ctx": 0.75, "r0/merged/ctx": 0.09375, "r1/c0/upload/ctx": 0.09375 - lr*slope0(0.09375)}},
	{Method: "promptfl", With: []string{"robust"}, Options: options{"tokens": 1, "init_std": 0, "kind": "norm-clip",
		"clip": 0.5, "weighting": "examples"},
		LR: lr, Want: map[string]float64{"r0/merged/ctx": -1.0 / 6}},
	// Moves of at most 0.6 are 0.6 and -0.5625; each client counts once, so their mean is 0.01875.
	{Method: "promptfl", With: []string{"dp"}, Options: options{"tokens": 1, "init_std": 0, "clip": 0.6, "noise": 0.0},
		LR: lr, Want: map[string]float64{
			"r0/c0/upload/ctx": 0.75, "r0/merged/ctx": 0.01875, "r1/c0/upload/ctx": 0.01875 - lr*slope0(0.01875)}},
	// Each class is on one client and all its rows are equal, so that no class has an extent: GGTPC measures that and
	// changes nothing of PromptFL. The two equal rows of class 1 are [0,0,0] as a packed covariance.
	{Method: "promptfl", With: []string{"ggtpc"}, Options: options{"tokens": 1, "init_std": 0, "min_count": 1}, LR: lr,
		Want: map[string]float64{
			"r0/survey/ggtpc/c0/n#0": 1, "r0/survey/ggtpc/c0/n#1": 0, "r0/survey/ggtpc/c0/mean#1": 0.8,
			"r0/survey/ggtpc/c1/n#1":    2,
			"r0/survey/ggtpc/c1/mean#2": 0.8, "r0/survey/ggtpc/c1/mean#0": 0, "r0/survey/ggtpc/c1/cov#5": 0,
			"r0/survey/ggtpc/digest/sizes#1": 0, "r0/survey/ggtpc/digest/axes#3": 0, "r0/c0/down/sizes#0": 0,
			"r1/c1/kept/sizes#1":    0,
			"r0/c1/s0/draw/clean#3": 0.6, "r0/c1/s0/image#3": 0.6, "r0/c0/upload/ctx": 0.75, "r0/merged/ctx": -0.125,
			"r1/c0/upload/ctx": second0}},
}

func TestTwoRoundsByHand(t *testing.T) {
	for _, h := range hands {
		t.Run(h.Method, h.Check)
	}
	for _, e := range methods.Table() {
		if !slices.ContainsFunc(hands, func(h methodtest.Hand) bool {
			return h.Method == e.Name && len(h.With) == 0 || slices.Contains(h.With, e.Name)
		}) {
			t.Errorf("%s has no numbers by hand", e.Name)
		}
	}
}
