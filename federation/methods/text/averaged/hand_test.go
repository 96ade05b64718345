package averaged_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/text/averaged"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

type options = methodtest.Options

var each = options{"tokens": 1, "init_std": 0, "class_specific": true}

const lr, average = methodtest.HandLR, methodtest.EndMean

var slope0, slope1, loss0, second0, with = methodtest.Slope0, methodtest.Slope1, methodtest.Loss0, methodtest.Second0,
	methodtest.Merge

var aptMean = 0.5 - lr*(slope0(1)+slope1(1))

// TRIP with one expert and no distillation is PromptFL. With two experts and keys of 1: the last tokens of an image, x,
// y and -1, have the clusters {x, y} and {-1}, at every capacity, and since the keys are equal the last cluster belongs
// to the first of them. The weights are 1/3 and 2/3, and both experts of 1/2 mix to 1/2. Against the hand-written
// (1,±1)/√2, whose logits differ by √2 y, the distillation is ln(1+e^-z) + (1-q) z, q = 1/(1+e^(-√2 y)), with
// the slope 1/(1+e^-z) - q in z, and dz/dp is 2y/r³. The slope of an expert is its weight times that slope.
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
)

// One prompt for each of two classes, both from 0: the scores of an image (x,y) differ by z = (x+yp)/r_p - (x-yq)/r_q,
// r_p = √(1+p²). Each prompt has half of PromptFL's slope, -0.4 on client 0 and 0.3 on client 1. With owners each
// class has the prompt of the client that has examples of it.
var (
	eachZ   = (0.6+0.8*0.375)/math.Hypot(1, 0.375) - (0.6+0.8*0.28125)/math.Hypot(1, 0.28125)
	second1 = -0.125 - lr*slope1(-0.125)
)

// FedTPG with one query, one head, weights of 0 but the attention's output weight of 1, and all biases 0. A layer norm
// over one number is 0, so queries and feed-forward layers contribute only their last bias. A client with examples of
// both classes looks at both names: layer norm maps their features (1,±1)/√2 to (0,0) and (tpgC,-tpgC), and both
// weigh 1/2. The prompt is 0 with slopes -0.8 and 0.6; the value, output and last biases have the same slopes, and the
// value weights ±tpgC/2 times them. The plain mean of both clients' first steps, lr 0.1 in the biases and ±lr 0.1
// tpgC/2 in the value weights, yields the prompt tpgP.
var (
	tpgC = math.Sqrt2 / 2 / math.Sqrt(0.5+1e-5)
	tpgP = lr * 0.1 * (3 + tpgC*tpgC/2)
)

var hands = []methodtest.HandExample{
	{Method: "promptfl", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Log(2), "r0/c0/s0/grad/ctx": -0.8, "r0/c1/s0/grad/ctx": 0.6,
		"r0/c0/upload/ctx": 0.75, "r0/c1/upload/ctx": -0.5625, "r0/merged/ctx": -0.125,
		// The average scores client 0's image (0.6,0.8): (0.6-0.1)/r and (0.6+0.1)/r with r = √(1+1/64).
		"r0/c0/eval/logits#0": 0.5 / math.Sqrt(1.015625), "r0/c0/eval/logits#1": 0.7 / math.Sqrt(1.015625),
		"r1/c0/begin/ctx": -0.125, "r1/c0/upload/ctx": second0, "r1/merged/ctx": (second0 + 2*second1) / 3}},
	// The server's step on client 0's example equals client 0's own first step.
	{Method: "gptfl", Options: options{"tokens": 1, "init_std": 0}, LR: lr, Synthetic: 1, Want: map[string]float64{
		"init/ctx": 0.75, "r0/c0/begin/ctx": 0.75, "r0/c0/upload/ctx": 0.75 - lr*slope0(0.75),
		"r0/c1/upload/ctx": 0.75 - lr*slope1(0.75)}},
	{Method: "fedtpg", Options: options{"tokens": 1, "heads": 1, "mult": 1}, LR: lr, Mirrored: true,
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
	// Client 0 has examples of class 0 only: against its own classes the loss is 0.
	{Method: "fedtpg", Options: options{"tokens": 1, "heads": 1, "mult": 1}, LR: lr,
		First: map[string]float64{"generator/cross/v/w": 1, "generator/cross/o/w": 1,
			"generator/cross/q/w": 3, "generator/cross/q/b": 2, "generator/cross/k/w": 1,
			"generator/cross/ff/out/b": 0.5,
			"generator/cross/v/b":      0.25,
			"generator/cross/ff/in/w":  0, "generator/cross/ff/in/b": 0},
		Want: map[string]float64{"r0/c0/s0/loss": 0, "r0/c1/s0/loss": 0, "r0/merged/generator/cross/o/b": 0,
			// Its prompt reads its own name alone, whose features are equal and so 0: 1/4 + 1/2.
			"r0/c0/eval/logits#0": (0.6 + 0.8*0.75) / 1.25}},
	{Method: "fedapt", Options: options{"tokens": 1, "weight": 0.6},
		LR: lr, First: map[string]float64{"ctx": 0.5, "query": 0, "apt/keys": 1}, Want: map[string]float64{
			"r0/c0/s0/loss": loss0(1) + 0.6*math.Ln2, "r0/c0/s0/grad/ctx": 2 * slope0(1),
			"r0/c1/s0/grad/ctx":     2 * slope1(1),
			"r0/c0/s0/grad/query#0": -3 * 0.6, "r0/c0/s0/grad/query#1": -3 * 0.8, "r0/c0/s0/grad/query#3": 3 * 0.8,
			"r0/c1/s0/grad/query#0": 3 * 0.8, "r0/merged/query#0": lr * 3 * (0.6 - 0.8) / 2, "r0/merged/ctx": aptMean,
			"r0/c0/eval/logits#0": (0.6 + 1.6*aptMean) / math.Hypot(1, 2*aptMean),
			"r1/c0/s0/grad/ctx":   2 * slope0(2*aptMean)}},
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
	// The cosine of (1,±p)/s and (1,±1)/√2 is 1/√2 at p = 0, with the slope 1/√2 in both classes.
	{Method: "kgcoop", Options: options{"tokens": 1, "lambda": 2.0}, LR: 0.5, Want: map[string]float64{
		"r0/c0/s0/loss": math.Ln2 + 2*(1-1/math.Sqrt2), "r0/c0/s0/grad/ctx": -0.8 - 2/math.Sqrt2,
		"r0/c1/upload/ctx": -0.5 * (0.6 - 2/math.Sqrt2)}},
	// The hand-written prompt predicts class 0 for all images. Both losses agree on client 0; on client 1 they are
	// opposed, and the one number has no gradient left.
	{Method: "prograd", Options: options{"tokens": 1}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/grad/ctx": -0.8, "r0/c0/upload/ctx": 0.75, "r0/c1/s0/grad/ctx": 0, "r0/c1/upload/ctx": 0,
		"r0/merged/ctx": 0.25, "r1/c0/s0/loss": loss0(0.25)}},
	// A hidden unit that is off leaves the bias, which has the prompt's gradient: in round 1 the prompt of each image
	// is twice that of PromptFL.
	{Method: "cocoop", Options: options{"tokens": 1}, LR: lr,
		First: map[string]float64{"ctx": 0, "meta/1/b": -10, "meta/2/w": 0, "meta/2/b": 0},
		Want: map[string]float64{
			"r0/c0/s0/grad/ctx": -0.8, "r0/c0/s0/grad/meta/2/b": -0.8, "r0/c0/s0/grad/meta/2/w": 0,
			"r0/merged/ctx": -0.125, "r0/merged/meta/2/b": -0.125, "r1/c0/s0/loss": loss0(-0.25),
			"r1/c0/s0/grad/ctx": slope0(-0.25)}},
	// One patch, one prompt: all mass moves from one to the other, and the score is that of PromptFL.
	{Method: "plot", Options: options{"tokens": 1, "n": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Ln2, "r0/c0/upload/prompts": 0.75, "r0/merged/prompts": -0.125,
		"r1/c0/s0/loss": loss0(-0.125), "r1/c0/upload/prompts": second0}},
	// Two equal prompts have no spread and the highest similarity, and each has half of the gradient.
	{Method: "proda", Options: options{"tokens": 1, "n": 2, "together": 2, "position": "end", "init_std": 0,
		"lambda": 0.5}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Ln2 + 0.5, "r0/c0/upload/prompts#0": 0.375, "r0/c0/upload/prompts#1": 0.375,
		"r0/merged/prompts#0": -0.0625, "r1/c0/s0/loss": loss0(-0.0625) + 0.5,
		"r1/c0/s0/grad/prompts#1": slope0(-0.0625) / 2}},
	{Method: "promptfl", Options: each, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Ln2, "r0/c0/s0/grad/ctx#0": -0.4, "r0/c0/s0/grad/ctx#1": -0.4,
		"r0/c1/upload/ctx#0": -0.28125, "r0/merged/ctx#0": -0.0625, "r0/merged/ctx#1": -0.0625}},
	{Method: "promptfl", Options: with(each, options{"class_average": "owners"}), LR: lr,
		Want: map[string]float64{"r0/c1/upload/class/n#0": 0, "r0/c1/upload/class/n#1": 2,
			"r0/merged/ctx#0": 0.375, "r0/merged/ctx#1": -0.28125,
			"r1/c0/s0/loss": math.Log(1 + math.Exp(-eachZ))}},
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, averaged.Methods, hands) }

// Four experts of 32 tokens of width 5 go both ways; a term without weight is no part of the loss.
func TestTrafficAndTerms(t *testing.T) {
	for _, d := range averaged.Methods {
		want := map[string]int{"trip": 1280, "promptfl": 30}[d.Name]
		if want > 0 && d.Traffic.Numbers(layer.Sizes{Tokens: 3, Width: 5}) != want {
			t.Errorf("%s does not send and receive %d numbers", d.Name, want)
		}
	}
	methodtest.CheckTermNames(t, "proda", options{"lambda": 0.0}, "cross entropy")
	methodtest.CheckTermNames(t, "proda", nil, "cross entropy, likeness of prompts")
}

// Prompts at three positions come in fours, prompts at one do not.
func TestProDAPrompts(t *testing.T) {
	for _, c := range []struct {
		options
		ok bool
	}{{options{"n": 8, "together": 4}, true}, {options{"n": 6, "together": 4}, false},
		{options{"n": 8, "together": 2}, false}, {options{"n": 6, "together": 3, "position": "end"}, true}} {
		_, err := methods.Build("proda", nil, c.options)
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "both must be multiples of 4") {
			t.Errorf("%v: %v", c.options, err)
		}
	}
}

// A client tells the server of its examples of each class where a class's prompt is averaged over their owners.
func TestPromptFLExtras(t *testing.T) {
	for o, want := range map[string]int{"all": 0, "owners": 1} {
		m := methodtest.Build(t, "promptfl", nil, options{"class_specific": true, "class_average": o})
		got := m.Extras(method.ClientSpec{Classes: 7})
		if len(got) != want || want == 1 && (got[0].Name != "class/n" || !got[0].Counts ||
			!slices.Equal(got[0].Shape, []int{7, 1})) {
			t.Errorf("%s: %+v", o, got)
		}
	}
}

// FedAPT's query for features of 9 begins within 1/3. A client's own domain is the one that the server sent, and none
// where the server does not know it, or sent one that does not exist.
func TestFedAPTStarts(t *testing.T) {
	m := methodtest.Build(t, "fedapt", nil, options{"domains": 2, "tokens": 3})
	g := &method.Global{Seed: 5, Shared: tensor.Map{"query": tensor.New(2, 9)}, Width: 4, Broadcast: tensor.Map{},
		Task: method.ClientSpec{Clients: 2}}
	goldentest.NoError(t, m.Start(g))
	unit := method.DrawUniform(5, "query", []int{1, 18}).Data
	for i, v := range g.Shared["query"].Data {
		if !(math.Abs(float64(v)-float64(unit[i])/3) <= 1e-7) {
			t.Errorf("query %d is %v, drawn %v within 1/3", i, v, unit[i])
		}
	}
	if keys := g.Broadcast["apt/keys"]; !slices.Equal(keys.Shape, []int{2, 3, 4}) || keys.MaxAbs() == 0 {
		t.Errorf("keys %v", keys)
	}
	sent := tensor.Of([]float32{1, 0, 2, -1}, 4)
	for client, want := range map[int][]float32{0: {0, 1}, 1: {1, 0}, 2: {0, 0}, 3: {0, 0}, 4: {0, 0}, -1: {0, 0}} {
		l := &method.Local{Broadcast: tensor.Map{"apt/domains": sent}, State: tensor.Map{}}
		if l.Task.Client = client; client < 0 {
			l.Task.Client, l.Broadcast = 0, tensor.Map{}
		}
		if err := m.Begin(l); err != nil || !slices.Equal(l.State["apt/domain"].Data, want) {
			t.Errorf("client %d: %v, %v", client, l.State["apt/domain"], err)
		}
	}
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, averaged.Methods) }
