package personalized_test

import (
	"fmt"
	"math"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/text/personalized"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

type options = methodtest.Options

var each = options{"tokens": 1, "init_std": 0, "class_specific": true}

const lr, average, end1 = methodtest.HandLR, methodtest.EndMean, methodtest.End1

var slope0, slope1, loss0, second0 = methodtest.Slope0, methodtest.Slope1, methodtest.Loss0, methodtest.Second0

var (
	fplFirst = map[string]float64{"global": 0, "c0/local": 0.5, "c1/local": -0.5}
	fplMean  = -lr * (slope0(0.5) + slope1(-0.5)) / 2
)

// pFedMoAP with the first channel of two, which is equal for both classes: the mixture adds the same to both scores,
// and half of the prompt's own score remains. In round 0 there are no other prompts to mix.
var (
	moapNone = map[string]float64{"ctx": 0}
	moapLoss = math.Log(1 + math.Exp(-0.8*average/math.Hypot(1, average)))
)

// PromptFolio from global = local = 0 with theta 0.4: z = 2y (0.6 g/r_g + 0.4 l/r_l), so dz/dg = 1.2 y and dz/dl = 0.8
// y, and the slopes are -0.48 and -0.32 on client 0, 0.36 and 0.24 on client 1. Client 0 ends with 0.45 and 0.3, client
// 1 with -0.3375 and -0.225; the mean of the global prompts is -0.075.
var (
	folioFirst = map[string]float64{"global": 0, "c0/local": 0, "c1/local": 0}
	folioY     = 0.6*-0.075/math.Hypot(1, 0.075) + 0.4*0.3/math.Hypot(1, 0.3)
)

// FedPHA from global = 1 and local = 0. The shared prompt has rank 1 in width 1, so exact-null leaves nothing: the
// projected prompt is 0. Pull: the features of p and 0 are (1,±p)/r and (1,0), at a squared distance of 2-2/r for both
// classes, with slope 2p/r³; it is 0 at p = 0. Push: the features of local p and global q are at the distance d =
// √(2-2(1+pq)/(rs)), s = √(1+q²). At p = 0, q = 1: d² = 2-√2; with c = (1+pq)/(rs), dc/dp = q/s = 1/√2 and
// dc/dq = -q/s³ = -1/(2√2), and dd = -dc/d. Push is alpha - d, so its slope is dc/d in each; with alpha = 1 it is
// active.
var (
	phaD     = math.Sqrt(2 - math.Sqrt2)
	local0   = -lr * (slope0(0) + 1/math.Sqrt2/phaD)
	local1   = -lr * (slope1(0) + 1/math.Sqrt2/phaD)
	global0  = 1 - lr*(slope0(1)-1/(2*math.Sqrt2)/phaD)
	global1  = 1 - lr*(slope1(1)-1/(2*math.Sqrt2)/phaD)
	globalM  = (global0 + 2*global1) / 3
	phaLoss0 = math.Log(2) + math.Log(1+math.Exp(-1.6/math.Sqrt2)) + (1 - phaD)
)

// Round 1, client 0: local0 and globalM. The loss is the sum of both cross entropies, the pull 2-2/r and the push.
var (
	phaR       = math.Hypot(1, local0)
	phaS       = math.Hypot(1, globalM)
	phaFar     = math.Sqrt(2 - 2*(1+local0*globalM)/(phaR*phaS))
	phaLossTwo = math.Log(1+math.Exp(-1.6*local0/phaR)) + math.Log(1+math.Exp(-1.6*globalM/phaS)) +
		2 - 2/phaR + math.Max(0, 1-phaFar)
)

// FedOTP from global = local = 0 with top_percent 0.8. The one patch sends its mass and each prompt receives 0.4, so T
// is (0.4,0.4) and z = 0.4 (2y g/r_g + 2y p/r_p): both prompts start with the slope 0.4 slope0(0), or 0.4 slope1(0).
var (
	otp0     = 0.4 * 0.8 * lr
	otp1     = -0.4 * 0.6 * lr
	otpM     = (otp0 + 2*otp1) / 3
	otpR     = math.Hypot(1, otp0)
	otpS     = math.Hypot(1, otpM)
	otpZ     = 0.64 * (otp0/otpR + otpM/otpS)
	otpSlope = -0.64 / (1 + math.Exp(otpZ)) // of client 0 in p/r in round 1
)

// FedPGP from sigma = 0 and u = v = 1, so the full prompt f = sigma + uv is 1; mu 1, temperature 1/2. With features
// (1,±p)/r the cosines, equal for both classes, are far = (1+sf)/(r(s) r(f)) and, to the hand-written (1,±1)/√2,
// near = (1+s)/(√2 r(s)). At s = 0, f = 1 both are 1/√2: the term is ln 2, its slope half of 2(far' - near'). In f,
// far' is -f/r(f)³ = -1/(2√2); in s at fixed f, far' and near' are 1/√2 each. So sigma, u and v all have the slope
// of cross entropy at 1 minus 1/(2√2).
var (
	pgp0, pgp1 = -lr * (slope0(1) - math.Sqrt2/4), -lr * (slope1(1) - math.Sqrt2/4) // sigma; u and v are 1 more
	pgpM       = (pgp0 + 2*pgp1) / 3
	pgpF       = pgpM + (1+pgp0)*(1+pgp0) // round 1, client 0
	pgpApart   = (1+pgpM*pgpF)/math.Hypot(1, pgpM)/math.Hypot(1, pgpF) - (1+pgpM)/math.Hypot(1, pgpM)/math.Sqrt2
	pgpLossTwo = math.Log(1+math.Exp(-1.6*pgpF/math.Hypot(1, pgpF))) + math.Log(1+math.Exp(2*pgpApart))
)

// Powder from two prompts of 0 and equal keys: each has half of the attention and so half of PromptFL's slope. The two
// stay equal, so keys have no slope. UOPP from 0: the expert is fully uncertain, so the mixed logits are the general
// ones, which count twice, and the uncertainty has no slope there. The expert learns from its own cross entropy.
var (
	general0, general1 = -2 * lr * slope0(0), -2 * lr * slope1(0)
	generalM           = (general0 + 2*general1) / 3
)

// The test on (0.6,0.8) with the expert 0.75 and the general average: the expert's logits are (0.6±0.8·0.75)/1.25.
var (
	sure  = 1 / (1 + math.Exp(-1.6*0.6))
	doubt = -(sure*math.Log(sure) + (1-sure)*math.Log(1-sure)) / math.Ln2
	mixed = doubt*(0.6+0.8*generalM)/math.Hypot(1, generalM) + (1-doubt)*0.96
)

var hands = []methodtest.HandExample{
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
	// The steps are those of PromptFL. Client 0 remembers one image of class 0, client 1 two of class 1, which have all
	// of its attention.
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
	{Method: "coop", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/after/ctx": 0.75, "r1/c0/begin/ctx": 0.75, "r1/c0/s0/after/ctx": 0.75 - lr*slope0(0.75),
		"r0/c1/s0/after/ctx": -0.5625, "r1/c1/s0/after/ctx": -0.5625 - lr*slope1(-0.5625)}},
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
	{Method: "fedpgp", Options: options{"tokens": 1, "rank": 1}, LR: lr,
		First: map[string]float64{"sigma": 0, "c0/u": 1, "c0/v": 1, "c1/u": 1, "c1/v": 1}, Want: map[string]float64{
			"r0/c0/s0/loss":      math.Log(1+math.Exp(-1.6/math.Sqrt2)) + math.Ln2,
			"r0/c0/upload/sigma": pgp0, "r0/c1/upload/sigma": pgp1, "r0/merged/sigma": pgpM, "r1/c0/begin/u": 1 + pgp0,
			"r1/c1/begin/v":       1 + pgp1,
			"r0/c0/eval/logits#0": (0.6 + 0.8*pgpF) / math.Hypot(1, pgpF), "r1/c0/s0/loss": pgpLossTwo}},
	{Method: "dpfpl", Options: options{"tokens": 1}, LR: lr, First: fplFirst, Want: map[string]float64{
		"r0/c0/s0/loss": loss0(0.5), "r0/c0/s0/grad/local": slope0(0.5), "r0/c1/s0/grad/local": slope1(-0.5),
		"r0/c0/upload/global": -lr * slope0(0.5), "r0/merged/global": fplMean,
		"r1/c0/begin/local": 0.5 - lr*slope0(0.5), "r1/c0/s0/loss": loss0(0.5 - lr*slope0(0.5) + fplMean)}},
	{Method: "dpfpl", Options: options{"tokens": 1, "clip": 0.01}, LR: lr, First: fplFirst,
		Want: map[string]float64{"r0/c0/s0/grad/local": -0.01, "r0/c0/s0/grad/global": -0.01,
			"r0/c1/s0/grad/local": 0.01, "r0/merged/global": 0}},
	{Method: "dpfpl", Options: options{"tokens": 1, "weighting": "examples"}, LR: lr, First: fplFirst,
		Want: map[string]float64{"r0/merged/global": -lr * (slope0(0.5) + 2*slope1(-0.5)) / 3}},
	// A step of length lr C for every client, and a mean of 0 without noise: the layer of the server's noise with a
	// clip of lr C clips nothing.
	{Method: "dpfpl", With: []string{"dp"}, Options: options{"tokens": 1, "dpfpl": options{"clip": 0.01},
		"dp": options{"clip": 0.01 * lr, "noise": 0.0, "delta": 0.1}}, LR: lr, First: fplFirst,
		Want: map[string]float64{"r0/c0/upload/global": 0.01 * lr, "r0/merged/global": 0}},
	{Method: "pfedmoap", Options: options{"tokens": 1, "experts": 2, "gating_dim": 1, "heads": 1},
		LR: lr, First: moapNone, Want: map[string]float64{"r0/c0/s0/loss": math.Ln2, "r0/c0/s0/grad/ctx": -0.8,
			"r0/c1/down/moap/known": 0, "r0/merged/ctx": average, "r0/kept/moap/1": end1,
			"r1/c0/down/moap/known": 1, "r1/c0/down/moap/experts": end1, "r1/c0/s0/loss": moapLoss}},
	{Method: "coop", Options: each, LR: lr, Want: map[string]float64{
		"r0/c0/s0/after/ctx#0": 0.375, "r1/c1/begin/ctx#1": -0.28125}},
	{Method: "promptfolio", Options: options{"tokens": 1}, LR: lr, First: folioFirst,
		Want: map[string]float64{"r0/c0/upload/global": 0.45, "r0/c1/upload/global": -0.3375,
			"r0/merged/global": -0.075, "r0/c0/s0/after/local": 0.3, "r0/c1/s0/after/local": -0.225,
			"r1/c0/begin/local": 0.3, "r1/c0/s0/loss": math.Log(1 + math.Exp(-1.6*folioY))}},
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, personalized.Methods, hands) }

// A term without weight is no part of the loss.
func TestTermsWithoutWeight(t *testing.T) {
	methodtest.CheckTermNames(t, "fedpgp", nil, "cross entropy, contrastive")
	methodtest.CheckTermNames(t, "fedpgp", options{"mu": 0.0}, "cross entropy")
}

// Two clients with 1 and 3 examples used the first of two prompts 1 and 1 times, and nobody the second: (2+3·6)/4. A
// client that sends no use, another number of them or one below 0 is refused.
func TestPowderByHand(t *testing.T) {
	build := func(o options) method.Method {
		return methodtest.Build(t, "powder", nil, methodtest.Merge(options{"tokens": 1, "prompts": 2}, o))
	}
	up := func(n int, v float32, use *tensor.Tensor) method.Upload {
		return method.Upload{N: n, Shared: tensor.Map{"pool/0": tensor.Of([]float32{v}, 1, 1),
			"pool/1": tensor.Of([]float32{9}, 1, 1)}, Extra: tensor.Map{"powder/use": use}}
	}
	use := func(v ...float32) *tensor.Tensor { return tensor.Of(v, len(v)) }
	m, plain := build(nil), build(options{"weighting": "examples"})
	g := &method.Global{Shared: tensor.Map{"pool/0": tensor.New(1, 1), "pool/1": tensor.New(1, 1)}}
	if err := m.Merge(g, []method.Upload{up(1, 2, use(1, 0)), up(3, 6, use(1, 0))}); err != nil ||
		g.Shared["pool/0"].Data[0] != 5 || g.Shared["pool/1"].Data[0] != 0 {
		t.Errorf("%v, %v", g.Shared, err)
	}
	for _, bad := range []*tensor.Tensor{nil, use(1), use(1, 2, 3), use(1, -1), use(2, -1),
		use(12.5, 12.5), use(0, 0), use(float32(math.NaN()), 1)} {
		err := m.Merge(g, []method.Upload{up(1, 2, use(1, 0)), up(3, 6, bad)})
		goldentest.WantErrorOf(t, fmt.Sprint(bad), err, "as powder/use; it must hold 2 numbers of at least 0")
	}
	if e := m.Extras(method.ClientSpec{}); len(e) != 1 || e[0].Name != "powder/use" || e[0].Shape[0] != 2 ||
		method.PropertiesOf(m).Needs == "" {
		t.Errorf("%+v", e)
	}
	for _, none := range []method.Method{plain, build(options{"sharpness": 0.0}), build(options{"prompts": 1})} {
		if e := none.Extras(method.ClientSpec{}); len(e) != 0 || method.PropertiesOf(none).Needs != "" {
			t.Errorf("%+v", e)
		}
	}
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, personalized.Methods) }
