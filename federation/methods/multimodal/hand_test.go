package multimodal_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/multimodal"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methodtest"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

type options = methodtest.Options

const lr = methodtest.HandLR

var loss0, bothTowers = methodtest.Loss0, methodtest.BothTowers

// IVLP's first round is that of PromptFL: at p = 0 the image prompt has no slope. MaPLe's image prompt is p/2 there.
var (
	ivlpLoss, ivlpP, ivlpQ    = bothTowers(-0.125, 0)
	mapleLoss, mapleP, mapleQ = bothTowers(-0.125, -0.0625)
)

// PromptSRC: the class features (1,±p)/s differ from those of the hand-written prompt, (1,±1)/√2, at p = 0 by
// 1-1/√2 and 1/√2: 1/2 in the mean of the four numbers, with the slope -1 on either class and so -1/2 in that mean.
var srcM = lr * (0.8 + 1 + 2*(-0.6+1)) / 3

// FedMGP with two groups, both from 0: each has half of PromptFL's slope, and equal groups have the cosine 1, whose
// slope is 0. Client 0 uploads 0.375, whichever of its two groups of texts it draws, and client 1 -0.28125. Then client
// 0 has 0.375 and their mean by examples. A prompt of the image tower changes nothing while both classes are equal.
var (
	mgpMean = (0.375 - 2*0.28125) / 3
	mgpLike = (1 + 0.375*mgpMean) / math.Hypot(1, 0.375) / math.Hypot(1, mgpMean)
)

// pFedDC with one token each: softmax over one key is 1, so the tower receives own + v o shared. With v o = 1/2, text
// prompts t and image prompts p, both 0 at first, z = 2 t (y+p) / (r s), s = √(1+t²). In round 0 only t has a slope,
// -y and y for the two clients; half of it is the slope of the shared prompt, and the weights have none, the shared
// prompts being 0.
var (
	dcM = lr * (0.4 - 2*0.3) / 3        // text/shared
	dcT = lr*0.8 + dcM/2                // the text prompt in client 0's tower in round 1
	dcS = math.Hypot(1, dcT)            // p is still 0 and r is 1
	dcZ = 2 * dcT * 0.8 / dcS           // of client 0
	dcG = -1 / (1 + math.Exp(dcZ))      // dL/dz
	dcP = dcG * 2 * dcT / dcS * 0.36    // dL/dp: d((y+p)/r)/dp = x²/r³
	dcD = dcG * 1.6 / (dcS * dcS * dcS) // dL/dt
)

var hands = []methodtest.HandExample{
	{Method: "ivlp", Options: options{"tokens": 1, "words": "", "vision_tokens": 1, "deep_std": 0}, LR: lr,
		Want: map[string]float64{
			"r0/c0/s0/loss": math.Ln2, "r0/c0/upload/text/prompt": 0.75, "r0/c0/upload/image/prompt": 0,
			"r0/merged/text/prompt": -0.125, "r1/c0/s0/loss": ivlpLoss, "r1/c0/s0/grad/text/prompt": ivlpP,
			"r1/c0/s0/grad/image/prompt": ivlpQ}},
	{Method: "maple", Options: options{"tokens": 1, "words": ""}, LR: lr,
		First: map[string]float64{"text/prompt": 0, "couple/w": 0.5, "couple/b": 0},
		Want: map[string]float64{
			"r0/c0/s0/grad/text/prompt": -0.8, "r0/c0/s0/grad/couple/b": 0, "r0/merged/text/prompt": -0.125,
			"r1/c0/s0/loss": mapleLoss, "r1/c0/s0/grad/couple/b": mapleQ, "r1/c0/s0/grad/couple/w": -0.125 * mapleQ,
			"r1/c0/s0/grad/text/prompt": mapleP + mapleQ/2}},
	// Both rounds count half, as the mean lies between them. After the first the server keeps half of its prompt.
	{Method: "promptsrc", Options: options{"tokens": 1, "words": "", "vision_depth": 0, "text_weight": 2.0,
		"kl_weight": 0.0, "ensemble": []string{}}, LR: lr, First: map[string]float64{"text/prompt": 0},
		Want: map[string]float64{
			"r0/c0/s0/loss": math.Ln2 + 1, "r0/c0/s0/grad/text/prompt": -1.8, "r0/c1/s0/grad/text/prompt": -0.4,
			"r0/merged/text/prompt": srcM, "r0/kept/gpa/text/prompt": srcM / 2}},
	{Method: "fedmgp", Options: options{"tokens": 1, "words": "", "init_std": 0, "groups": 2,
		"exchanged": 1, "vision_tokens": 1, "vision_std": 0, "lambda": 0.5}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Ln2 + 0.5*2, "r0/c0/s0/grad/text/groups#0": -0.4,
		"r0/c0/s0/grad/text/groups#1": -0.4, "r0/c0/upload/text/global": 0.375,
		"r0/c1/upload/text/global": -0.28125, "r0/merged/text/global": mgpMean, "r0/merged/image/global": 0,
		"r0/c0/eval/logits#0": ((0.6+0.8*0.375)/math.Hypot(1, 0.375) + (0.6+0.8*mgpMean)/math.Hypot(1, mgpMean)) / 2,
		"r1/c0/s0/loss":       (loss0(0.375)+loss0(mgpMean))/2 + 0.5*(mgpLike+1)}},
	{Method: "pfeddc", Options: options{"text_tokens": 1, "vision_tokens": 1}, LR: lr,
		First: map[string]float64{"text/shared": 0, "image/shared": 0, "c0/text/own": 0, "c0/image/own": 0,
			"c1/text/own": 0, "c1/image/own": 0,
			"c0/att/text/v": 1, "c0/att/text/o": 0.5, "c1/att/text/v": 1, "c1/att/text/o": 0.5,
			"c0/att/image/v": 1, "c0/att/image/o": 0.5, "c1/att/image/v": 1, "c1/att/image/o": 0.5},
		Want: map[string]float64{
			"r0/c0/s0/loss": math.Ln2, "r0/c0/s0/grad/text/own": -0.8, "r0/c0/s0/grad/text/shared": -0.4,
			"r0/c1/s0/grad/text/own":  0.6,
			"r0/c0/s0/grad/image/own": 0, "r0/c0/s0/grad/att/text/v": 0, "r0/merged/text/shared": dcM,
			"r1/c1/begin/text/own": -0.6 * lr,
			"r1/c0/s0/loss":        math.Log(1 + math.Exp(-dcZ)), "r1/c0/s0/grad/image/own": dcP,
			"r1/c0/s0/grad/image/shared": dcP / 2,
			"r1/c0/s0/grad/text/own":     dcD, "r1/c0/s0/grad/att/text/v": dcD * 0.5 * dcM,
			"r1/c0/s0/grad/att/text/o": dcD * dcM,
			"r1/c0/s0/grad/att/text/q": 0}},
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, multimodal.Methods, hands) }

// A term without weight is no part of the loss, nor is one of a tower without prompts or of a single group.
func TestTermsWithoutWeight(t *testing.T) {
	for _, c := range []struct {
		method string
		options
		want string
	}{
		{"fedmgp", options{"lambda": 0.0}, "cross entropy"},
		{"fedmgp", options{"groups": 1, "exchanged": 1}, "cross entropy"},
		{"fedmgp", options{"vision_tokens": 0}, "cross entropy, likeness of texts"},
		{"promptsrc", options{"vision_depth": 0}, "cross entropy, text features, class probabilities"},
		{"promptsrc", options{"text_weight": 0.0}, "cross entropy, image features, class probabilities"},
		{"promptsrc", options{"image_weight": 0.0}, "cross entropy, text features, class probabilities"},
		{"promptsrc", options{"kl_weight": 0.0}, "cross entropy, text features, image features"},
	} {
		methodtest.CheckTermNames(t, c.method, c.options, c.want)
	}
}

// PromptSRC leaves no place for a step of the server where its last round ends with the mean over all rounds.
func TestPromptSRCRoles(t *testing.T) {
	for gpa, want := range map[string]string{"rounds": "set options.gpa: none", "none": ""} {
		m := methodtest.Build(t, "promptsrc", nil, options{"gpa": gpa})
		if got := method.PropertiesOf(m).Roles[method.ServerStep]; got != want {
			t.Errorf("gpa %s: %q, want %q", gpa, got, want)
		}
	}
}

// A round without an upload counts with the prompts of the round before: of rounds of equal weight, (1+1+4)/3. A run
// must not end before its last round, which makes the mean.
func TestPromptSRCWithoutUpload(t *testing.T) {
	m := methodtest.Build(t, "promptsrc", nil, options{"gpa_std": 1e6})
	global := &method.Global{Shared: tensor.Map{"p": tensor.Scalar(0)}, State: tensor.Map{}, Rounds: method.Rounds(3)}
	for _, up := range []method.Upload{{Shared: tensor.Map{"p": tensor.Scalar(1)}, N: 1},
		{Shared: tensor.Map{"p": tensor.Scalar(4)}, N: 1}} {
		goldentest.NoError(t, m.Merge(global, []method.Upload{up}))
		global.Round += 2
	}
	if got := global.Shared["p"].Data[0]; math.Abs(float64(got-2)) > 1e-6 || !method.PropertiesOf(m).LastRound {
		t.Errorf("the mean of 1, 1 and 4 is %v", got)
	}
}

// MaPLe's layer from 8 numbers begins within 1/√8, as torch.nn.Linear does, and those of later blocks are equal.
// Where no block of the text tower is known, it would learn the prompts of depth 1. The error of FedMGP
// says how to leave out the tokens of an image tower that supports none.
func TestMaPLeStarts(t *testing.T) {
	m, exported := methodtest.Build(t, "maple", nil, nil), layer.PlaceholderClient
	exported.TextLayers = 0
	scope, _, _ := method.LossOf(m, exported)
	goldentest.WantError(t, scope.Graph().Err(), "; set options.depth to 1")
	exported.VisionWidth = 0
	scope, _, _ = method.LossOf(methodtest.Build(t, "fedmgp", nil, nil), exported)
	goldentest.WantError(t, scope.Graph().Err(), "; set options.vision_tokens to 0")
	g := &method.Global{Seed: 5, Shared: tensor.Map{}}
	for _, p := range m.Params(layer.PlaceholderClient) {
		g.Shared[p.Name] = tensor.New(p.Shape...)
	}
	goldentest.NoError(t, m.Start(g))
	for _, name := range []string{"couple/w", "couple/b", "couple/deep/w", "couple/deep/b"} {
		got := g.Shared[name]
		if strings.HasPrefix(name, "couple/deep") {
			for i := range got.Shape[0] {
				if !slices.Equal(got.Row(i).Data, got.Row(0).Data) {
					t.Errorf("%s: block %d begins otherwise", name, i)
				}
			}
			got = got.Row(0)
		}
		unit := method.DrawUniform(5, name, []int{1, got.Len()}).Data
		for i, v := range got.Data {
			if !(math.Abs(float64(v)-float64(unit[i])/math.Sqrt(8)) <= 1e-7) {
				t.Fatalf("%s: %v, drawn %v within 1/√8", name, v, unit[i])
			}
		}
	}
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, multimodal.Methods) }
