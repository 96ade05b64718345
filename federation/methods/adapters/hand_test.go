package adapters_test

import (
	"math"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods/adapters"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methodtest"
)

type options = methodtest.Options

const lr = methodtest.HandLR

var slope0, slope1, loss0, bothTowers = methodtest.Slope0, methodtest.Slope1, methodtest.Loss0, methodtest.BothTowers

// FLoRA: the text is the prompt 1 + A B, at A = 1/2 and B = 0. At p = 1 B has half of the slope, and A none.
var (
	loraB0, loraB1 = -0.5 * lr * slope0(1), -0.5 * lr * slope1(1)
	loraM          = (loraB0 + 2*loraB1) / 3
)

// pFedMMA: both adapters read 1. down and mid map it to 1 and 2, up to 0.4·2 for texts and -0.3·2 for images. Half of
// that is added to the prompts 1 and 0.
var (
	mmaLoss, mmaP, mmaQ = bothTowers(1+0.4, -0.3)
	mmaFirst            = mmaPinned()
)

func mmaPinned() map[string]float64 {
	out := map[string]float64{"mid/w": 2, "mid/b": 0}
	for _, client := range []string{"c0/", "c1/"} {
		for tower, up := range map[string]float64{"text": 0.4, "image": -0.3} {
			out[client+tower+"/down/w"], out[client+tower+"/up/w"] = 1, up
		}
	}
	return out
}

// FedCLIP by cross entropy, from an adapter of zeros. The class features are (1,1)/√2 and (1,-1)/√2. With d the
// difference of the second layer's two biases, f' is (x, y e^d) normalized: at the angle θ with tan θ = y e^d / x, so
// z = √2 sin θ and dz/dd = √2 sin θ cos²θ; d moves twice as fast as each bias. All weights keep the slope 0,
// since the hidden layer is 0.
func clipSlope(x, y, d, sign float64) (slope, loss float64) {
	angle := math.Atan2(y*math.Exp(d), x)
	z, dz := math.Sqrt2*math.Sin(angle), math.Sqrt2*math.Sin(angle)*math.Cos(angle)*math.Cos(angle)
	return -sign * dz / (1 + math.Exp(sign*z)), math.Log(1 + math.Exp(-sign*z))
}

var (
	clip0, _   = clipSlope(0.6, 0.8, 0, 1)
	clip1, _   = clipSlope(0.8, 0.6, 0, -1)
	clipM      = -lr * (clip0 + clip1) / 2 // of the second bias, with equal weights; the first bias is its opposite
	_, clipTwo = clipSlope(0.6, 0.8, 2*clipM, 1)
)

var hands = []methodtest.HandExample{
	{Method: "fedclip", Options: options{"loss": "ce"}, LR: lr,
		First: map[string]float64{"adapter/1/w": 0, "adapter/1/b": 0, "adapter/2/w": 0, "adapter/2/b": 0},
		Want: map[string]float64{
			"r0/c0/s0/loss": math.Log(1 + math.Exp(-math.Sqrt2*0.8)), "r0/c0/s0/grad/adapter/2/b#1": clip0,
			"r0/c0/s0/grad/adapter/2/b#0": -clip0,
			"r0/c1/s0/grad/adapter/2/b#1": clip1, "r0/c0/s0/grad/adapter/1/w#3": 0, "r0/merged/adapter/2/b#1": clipM,
			"r1/c0/s0/loss": clipTwo}},
	// A batch of one image has one text, so the contrastive loss has nothing to separate.
	{Method: "fedclip", LR: lr, First: map[string]float64{"adapter/1/w": 0.5, "adapter/1/b": 1, "adapter/2/w": -2,
		"adapter/2/b": 0},
		Want: map[string]float64{"r0/c0/s0/loss": 0, "r1/c0/s0/loss": 0, "r0/c1/s0/loss": math.Log(2)}},
	// The hand-written prompts are (1,1) and (1,-1): client 0 scores (0.6+0.8)/√2 and (0.6-0.8)/√2.
	{Method: "zeroshot", LR: lr, Want: map[string]float64{
		"r0/c0/eval/logits#0": 1.4 / math.Sqrt2, "r0/c0/eval/logits#1": -0.2 / math.Sqrt2,
		"r1/c1/eval/logits#1": 0.2 / math.Sqrt2}},
	{Method: "pfedmma", Options: options{"rank": 1, "alpha": 0.5, "grad_rescale": false}, LR: lr, First: mmaFirst,
		Want: map[string]float64{
			"r0/c0/s0/loss": mmaLoss, "r0/c0/s0/grad/text/up/b": mmaP / 2, "r0/c0/s0/grad/image/up/b": mmaQ / 2,
			"r0/c0/s0/grad/text/up/w": mmaP, "r0/c0/s0/grad/text/down/w": mmaP * 0.5 * 0.4 * 2,
			"r0/c0/s0/grad/mid/w": 0.5*mmaP*0.4 + 0.5*mmaQ*-0.3, "r1/c0/begin/text/up/b": -lr * mmaP / 2}},
	// The same, with the layers' gradients of alpha = 1.
	{Method: "pfedmma", Options: options{"rank": 1, "alpha": 0.5}, LR: lr, First: mmaFirst,
		Want: map[string]float64{
			"r0/c0/s0/loss": mmaLoss, "r0/c0/s0/grad/text/up/b": mmaP, "r0/c0/s0/grad/image/up/b": mmaQ,
			"r0/c0/s0/grad/mid/w": mmaP*0.4 + mmaQ*-0.3}},
	{Method: "fedlora", Options: options{"maps": []string{"q"}, "rank": 1, "alpha": 1.0, "loss": "ce"}, LR: lr,
		First: map[string]float64{"text/q/a": 0.5, "text/q/b": 0}, Want: map[string]float64{
			"r0/c0/s0/loss": loss0(1), "r0/c0/s0/grad/text/q/a": 0, "r0/c0/upload/text/q/b": loraB0,
			"r0/c1/upload/text/q/b": loraB1, "r0/merged/text/q/b": loraM, "r1/c0/s0/loss": loss0(1 + loraM/2)}},
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, adapters.Methods, hands) }

// A tower without blocks that can be reached is refused, unless the method leaves it alone. FedLoRA's first factor has
// the deviation 1/√rank, pFedMMA's layers √(2/outputs).
func TestTowersAndStarts(t *testing.T) {
	noText, noVision := layer.PlaceholderClient, layer.PlaceholderClient
	noText.TextLayers, noVision.VisionLayers = 0, 0
	for _, c := range []struct {
		method, towers string
		task           method.ClientSpec
		ok             bool
	}{
		{"fedlora", "both", layer.PlaceholderClient, true}, {"fedlora", "both", noText, false},
		{"fedlora", "both", noVision, false}, {"fedlora", "text", noVision, true}, {"fedlora", "image", noText, true},
		{"fedlora", "text", noText, false}, {"fedlora", "image", noVision, false},
		{"pfedmma", "both", layer.PlaceholderClient, true}, {"pfedmma", "both", noText, false},
		{"pfedmma", "text", noVision, true}, {"pfedmma", "image", noVision, false},
	} {
		m := methodtest.Build(t, c.method, nil, options{"towers": c.towers, "rank": 4})
		s := method.NewScope(c.task, m.Params(c.task))
		m.Logits(s)
		if err := s.Graph().Err(); (err == nil) != c.ok || err != nil &&
			!strings.Contains(err.Error(), "set options.towers, or convert a checkpoint") {
			t.Errorf("%+v: %v", c, err)
		}
		for _, p := range m.Params(layer.PlaceholderClient) {
			want := 0.0
			switch {
			case c.method == "fedlora" && strings.HasSuffix(p.Name, "/a"):
				want = 0.5
			case c.method == "pfedmma" && strings.HasSuffix(p.Name, "/w"):
				want = math.Sqrt(2 / float64(p.Shape[1]))
			}
			if p.Std != want {
				t.Errorf("%s of %s begins with the deviation %v, want %v", p.Name, c.method, p.Std, want)
			}
		}
	}
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, adapters.Methods) }
