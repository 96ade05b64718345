package loss_test

import (
	"math"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/wrappers/loss"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
)

type options = methodtest.Options

const lr, average, end0 = methodtest.HandLR, methodtest.EndMean, methodtest.End0

var slope0, slope1, second0, over = methodtest.Slope0, methodtest.Slope1, methodtest.Second0, methodtest.OverPromptFL

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
)

// One update of the discriminator, rate 0.1, pool {apprM}, uploads {appr0, appr1}: the loss
// ln(1+e^-o(m)) + mean ln(1+e^o(u)) has the slopes -1/(1+e^o(m)) and 1/(1+e^-o(u))/2 in the odds o = w2 w1 p, whose
// slopes are p w2 in w1 and p w1 in w2.
var (
	past   = -1 / (1 + math.Exp(2*apprM))
	now0   = 1 / (1 + math.Exp(-2*appr0)) / 2
	now1   = 1 / (1 + math.Exp(-2*appr1)) / 2
	sum    = past*apprM + now0*appr0 + now1*appr1
	apprW1 = 2 - 0.1*sum*1
	apprW2 = 1 - 0.1*sum*2
)

// Round 1, client 0 starts from apprM against the new discriminator.
var (
	odds     = apprW1 * apprW2 * apprM
	apprTwo0 = apprM - apprLR*(slope0(apprM)-0.3*apprW1*apprW2/(1+math.Exp(odds)))
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
// sends (1,0.5625)/r. In round 1 client 0 is at p = -0.125. The squared distance of unit rows is 2(1 - cos), and its
// mean over the two dimensions half of it, with cos = (1+0.75p)/(1.25 r).
var (
	protoR     = math.Hypot(1, average)
	protoCos   = (1 + end0*average) / (1.25 * protoR)
	protoSlope = (end0 - (1+end0*average)*average/(protoR*protoR)) / (1.25 * protoR)
	protoCE    = math.Log(1 + math.Exp(-1.6*average/protoR))
)

var hands = []methodtest.HandExample{
	{Method: "fedappr", Options: options{"tokens": 1, "hidden": 1, "warmup": 0, "lambda_a": 0.3, "lambda_r": 0.2,
		"disc_lr":    0.1,
		"disc_optim": "sgd", "disc_norm": "none", "disc_steps": 1},
		LR: apprLR, First: map[string]float64{"ctx": 0.5, "fedappr/w1": 2, "fedappr/w2": 1}, Want: map[string]float64{
			"r0/c0/upload/ctx": appr0, "r0/c1/upload/ctx": appr1, "r0/merged/ctx": apprM,
			"r0/kept/fedappr/pool/000000": apprM,
			"r0/down/fedappr/w1":          apprW1, "r0/down/fedappr/w2": apprW2, "r1/c0/upload/ctx": apprTwo0,
			// The test uses the client's own prompt, not the average: (0.6+0.8p)/r.
			"r0/c0/eval/logits#0": (0.6 + 0.8*appr0) / math.Hypot(1, appr0)}},
	{Method: "promptfl", With: []string{"appr"}, Options: options{"tokens": 1, "hidden": 1, "warmup": 0,
		"lambda_a": 0.3, "lambda_r": 0.2,
		"disc_lr": 0.1, "disc_optim": "sgd", "disc_norm": "none", "disc_steps": 1, "view": "base"},
		LR: apprLR, First: map[string]float64{"ctx": 0.5, "fedappr/w1": 2, "fedappr/w2": 1}, Want: map[string]float64{
			"r0/c1/upload/ctx": appr1, "r0/kept/fedappr/pool/000000": apprM, "r0/down/fedappr/w1": apprW1,
			"r0/down/fedappr/w2": apprW2,
			"r1/c0/upload/ctx":   apprTwo0, "r0/c0/eval/logits#0": (0.6 + 0.8*apprM) / math.Hypot(1, apprM)}},
	// Without the true one of two classes one class remains: there is nothing to distil.
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
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, loss.Methods, hands) }

// A term without weight is no part of the loss.
func TestTermsWithoutWeight(t *testing.T) {
	for _, c := range []struct {
		stack string
		options
		want string
	}{
		{"promptfl+fedntd", options{"beta": 0.0}, "cross entropy"},
		{"promptfl+moon", options{"mu": 0.0}, "cross entropy"},
		{"promptfl+fedproto", options{"lambda": 0.0}, "cross entropy"},
		{"promptfl+appr", nil, "cross entropy, adversarial, proximity"},
		{"promptfl+appr", options{"lambda_r": 0.0}, "cross entropy, adversarial"},
		{"promptfl+appr", options{"lambda_a": 0.0}, "cross entropy, proximity"},
	} {
		methodtest.CheckTermNames(t, c.stack, c.options, c.want)
	}
}

// Of 3 tokens of width 5, 7 classes, features of 11 and 13 hidden units: 2·7·11, and 2·3·5 + 5·13 + 13. A teacher
// that reads private parameters only is none.
func TestTrafficAndTeacher(t *testing.T) {
	for _, d := range loss.Methods {
		want := map[string]int{"fedproto": 154, "appr": 108, "fedappr": 108}[d.Name]
		sizes := layer.Sizes{Tokens: 3, Width: 5, Classes: 7, Dim: 11, Hidden: 13}
		if numbers := d.Traffic.Numbers; (numbers != nil) != (want > 0) || want > 0 && numbers(sizes) != want {
			t.Errorf("%s does not send and receive %d numbers", d.Name, want)
		}
	}
	for lambda, needs := range map[float64]bool{0: false, 0.5: true} { // a discriminator needs every prompt
		m := methodtest.Build(t, "promptfl", []string{"appr"}, options{"lambda_a": lambda})
		if p := method.PropertiesOf(m); (p.Needs != "") != needs || (len(p.Delays) > 0) != needs {
			t.Errorf("lambda_a %v: %+v", lambda, p)
		}
	}
	_, err := methods.Build("coop", []string{"fedntd"}, nil)
	goldentest.WantError(t, err, "its teacher would be the client's own private parameters")
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, loss.Methods) }
