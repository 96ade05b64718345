package personal_test

import (
	"math"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/wrappers/personal"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

type options = methodtest.Options

var zero = options{"tokens": 1, "init_std": 0}

var bias = options{"tokens": 1, "private": "meta/2/b"}

const lr, average, end0, end1 = methodtest.HandLR, methodtest.EndMean, methodtest.End0, methodtest.End1

var slope0, slope1, loss0, prox0, with = methodtest.Slope0, methodtest.Slope1, methodtest.Loss0, methodtest.Prox0,
	methodtest.Merge

// Ditto with lambda 0.4 and two steps: v moves like FedProx's prompt, to prox0, and w is unaffected.
//
// APFL with a = 0.5, alpha_lr 0.1 and two steps: the first moves w to 0.75 and v, whose gradient is half of that at
// their mix, to 0.375, and keeps a, since w and v were equal. Their mix is 0.5625, and the second step has the slope
// there.
var (
	ditto0 = end0 - lr*slope0(end0)
	ditto1 = end1 - lr*slope1(end1)
	dittoM = (ditto0 + 2*ditto1) / 3
	apflV  = 0.375 - lr*0.5*slope0(0.5625)
	apflA  = 0.5 - 0.1*(0.375-0.75)*slope0(0.5625)
	apflM  = apflA*apflV + (1-apflA)*ditto0
)

// FedAMP with mu 0.5: sigma is the only squared distance, so the other client weighs exp(-1)/2. Client 0 continues from
// 0.75 and is pulled to its mixture.
var ampU0 = end0 + math.Exp(-1)/2*(end1-end0)

// FedPer and FedRep over CoCoOp with a hidden unit that is off, so a prompt is the sum of ctx and the bias, and the
// bias is private: both have PromptFL's gradient. FedPer's first steps move both parameters of client 0 to 0.75, and
// the next round starts from the averaged ctx and the client's own bias. FedRep's first pass moves the bias to 0.75,
// and the second moves ctx by its slope there.
var (
	conditioned = map[string]float64{"ctx": 0, "meta/1/b": -10, "meta/2/w": 0, "c0/meta/2/b": 0, "c1/meta/2/b": 0}
	rep0, rep1  = -lr * slope0(end0), -lr * slope1(end1)
	repM        = (rep0 + 2*rep1) / 3
)

var hands = []methodtest.HandExample{
	{Method: "promptfl", With: []string{"fedamp"}, Options: with(zero, options{"mu": 0.5}), LR: lr,
		Want: map[string]float64{"r0/c0/s0/grad/ctx": -0.8, "r0/merged/ctx": average, "r0/kept/amp/1/ctx": end1,
			"r1/c0/down/amp/u/ctx": ampU0, "r1/c0/begin/ctx": end0,
			"r1/c0/s0/loss":     loss0(end0) + 0.25*(end0-ampU0)*(end0-ampU0),
			"r1/c0/s0/grad/ctx": slope0(end0) + 0.5*(end0-ampU0)}},
	{Method: "cocoop", With: []string{"fedper"}, Options: bias, LR: lr, First: conditioned,
		Want: map[string]float64{"r0/merged/ctx": average, "r1/c0/begin/meta/2/b": end0,
			"r1/c0/s0/loss": loss0(average + end0), "r1/c0/s0/grad/ctx": slope0(average + end0)}},
	{Method: "cocoop", With: []string{"fedrep"}, Options: bias, LR: lr, Epochs: 2,
		First: conditioned, Want: map[string]float64{"r0/c0/s0/after/ctx": 0,
			"r0/c0/s1/after/meta/2/b": end0, "r0/c0/upload/ctx": rep0,
			"r0/merged/ctx": repM, "r1/c0/s0/loss": loss0(repM + end0)}},
	{Method: "promptfl", With: []string{"ditto"}, Options: with(zero, options{"lambda": 0.4}),
		LR: lr, Epochs: 2, Want: map[string]float64{"r0/c0/s1/after/ditto/ctx": prox0, "r0/c0/upload/ctx": ditto0,
			"r0/merged/ctx": dittoM, "r0/c0/eval/logits#0": (0.6 + 0.8*prox0) / math.Hypot(1, prox0),
			"r1/c0/s0/grad/ditto/ctx": slope0(prox0) + 0.4*(prox0-dittoM), "r1/c0/s0/grad/ctx": slope0(dittoM)}},
	{Method: "promptfl", With: []string{"apfl"}, Options: with(zero, options{"alpha_lr": 0.1}),
		LR: lr, Epochs: 2, Want: map[string]float64{"r0/c0/s1/after/apfl/ctx": apflV, "r0/c0/upload/ctx": ditto0,
			"r1/c0/kept/apfl/a": apflA, "r0/c0/eval/logits#1": (0.6 - 0.8*apflM) / math.Hypot(1, apflM)}},
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, personal.Methods, hands) }

// A client that has not uploaded yet has no mixture, and is in none. For the others sigma is their only squared
// distance, so each weighs exp(-1)/2 for the other.
func TestFedAMPWithoutUpload(t *testing.T) {
	at := func(v float32) tensor.Map { return tensor.Map{"ctx": tensor.Of([]float32{v}, 1, 1)} }
	g := &method.Global{Clients: 3, Shared: at(0), State: tensor.Map{}, PerClient: map[int]tensor.Map{}}
	m := methodtest.Build(t, "promptfl", []string{"fedamp"}, zero)
	ups := []method.Upload{{Client: 0, N: 1, Shared: at(0)}, {Client: 2, N: 1, Shared: at(2)}}
	goldentest.NoError(t, m.Merge(g, ups))
	got := float64(g.PerClient[0]["amp/u/ctx"].Data[0])
	if math.Abs(got-math.Exp(-1)) > 1e-7 || len(g.PerClient) != 2 {
		t.Errorf("%v of %v", got, g.PerClient)
	}
}

// Without weight, Ditto's own model has no pull.
func TestTermsWithoutWeight(t *testing.T) {
	methodtest.CheckTermNames(t, "promptfl+ditto", nil, "cross entropy, cross entropy personal, proximal personal")
	methodtest.CheckTermNames(t, "promptfl+ditto", options{"lambda": 0.0}, "cross entropy, cross entropy personal")
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, personal.Methods) }
