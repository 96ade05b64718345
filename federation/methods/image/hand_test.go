package image_test

import (
	"math"
	"strings"
	"testing"

	"promptfed/federation/method"
	"promptfed/federation/methods"
	"promptfed/federation/methods/image"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methodtest"
)

type options = methodtest.Options

const lr = methodtest.HandLR

// FedMVP from a network of zeros: a layer norm of one number is 0, and so are all layers behind it. An image's token p
// is therefore the sum of two biases, the attention's last and the last of all, which have one gradient. The features
// are (x, y+p), at the angle a with tan a = (y+p)/x, against the hand-written (1,±1)/√2 of both templates. The two
// logits differ by √2 sin a. The distance from the plain tower is 1 - cos(a - a0); its one pixel has no mirror image.
// da/dp is x/(x²+(y+p)²).
func mvpSlope(x, y, p, sign, alpha float64) (slope, loss float64) {
	a, turn := math.Atan2(y+p, x), x/(x*x+(y+p)*(y+p))
	off, z := a-math.Atan2(y, x), sign*math.Sqrt2*math.Sin(a)
	return (-sign*math.Sqrt2*math.Cos(a)/(1+math.Exp(z)) + alpha*math.Sin(off)) * turn,
		math.Log(1+math.Exp(-z)) + alpha*(1-math.Cos(off))
}

var (
	mvp0, mvpLoss0 = mvpSlope(0.6, 0.8, 0, 1, 3)
	mvp1, _        = mvpSlope(0.8, 0.6, 0, -1, 3)
	mvpMean        = -lr * (mvp0 + mvp1) / 2
	mvp2, mvpLoss2 = mvpSlope(0.6, 0.8, 2*mvpMean, 1, 3) // both biases moved
)

// mvpFirst returns zeros for all of the network.
func mvpFirst() map[string]float64 {
	out := map[string]float64{}
	m, err := methods.Build("fedmvp", nil, options{"heads": 1, "mult": 1})
	if err != nil {
		panic(err)
	}
	for _, p := range m.Params(layer.PlaceholderClient) {
		out[p.Name] = 0
	}
	return out
}

// A prompt p of the pencil's image tower maps an image (x,y) to (x,y+p)/r, r = √(x²+(y+p)²). The hand-written
// prompts have the features (1,±1)/√2, so the scores of the two classes differ by z = √2 (y+p)/r, and dz/dp = √2
// x²/r³. Client 0, (0.6,0.8) of class 0, has the loss ln(1+e^-z), client 1, (0.8,0.6) of class 1, ln(1+e^z).

func look(x, y, p float64) (z, slope float64) {
	r := math.Hypot(x, y+p)
	return math.Sqrt2 * (y + p) / r, math.Sqrt2 * x * x / (r * r * r)
}

func look0(p float64) (loss, slope float64) {
	z, d := look(0.6, 0.8, p)
	return math.Log(1 + math.Exp(-z)), -d / (1 + math.Exp(z))
}

func look1(p float64) (loss, slope float64) {
	z, d := look(0.8, 0.6, p)
	return math.Log(1 + math.Exp(z)), d / (1 + math.Exp(-z))
}

// afterSteps returns p after some gradient steps.
func afterSteps(p float64, steps int, look func(float64) (loss, slope float64)) float64 {
	for range steps {
		_, slope := look(p)
		p -= lr * slope
	}
	return p
}

func lossOf(loss, _ float64) float64 { return loss }

var vptM = (afterSteps(0, 1, look0) + 2*afterSteps(0, 1, look1)) / 3

// FedHPL, two steps a round. After them both clients predict all their images correctly. A class of only one client is
// taught by that client's own scores, so the first step of round 1 has no second term. In the second step that term has
// T² times the divergence of two-class probabilities, which depend on z/T alone.
var (
	hpl0, hpl1 = afterSteps(0, 2, look0), afterSteps(0, 2, look1)
	hplThird   = afterSteps(hpl0, 1, look0)
	hplZ, _    = look(0.6, 0.8, hpl0)
	hplNow, _  = look(0.6, 0.8, hplThird)
	hplP       = 1 / (1 + math.Exp(-hplZ/2))
	hplQ       = 1 / (1 + math.Exp(-hplNow/2))
	hplKL      = hplP*math.Log(hplP/hplQ) + (1-hplP)*math.Log((1-hplP)/(1-hplQ))
)

var hands = []methodtest.HandExample{
	{Method: "fedmvp", Options: options{"heads": 1, "mult": 1, "tokens": 1,
		"alpha": 3.0, "templates": []string{"a {}", "the {}"}}, LR: lr, First: mvpFirst(), Want: map[string]float64{
		"r0/c0/s0/loss": mvpLoss0, "r0/c0/s0/grad/former/o/b": mvp0, "r0/c1/s0/grad/former/ff/out/b": mvp1,
		"r0/c0/s0/grad/former/q/w": 0, "r0/merged/former/o/b": mvpMean, "r1/c0/s0/loss": mvpLoss2,
		"r1/c0/s0/grad/former/o/b": mvp2}},
	{Method: "fedvpt", Options: options{"vision_tokens": 1, "vision_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": lossOf(look0(0)), "r0/c0/upload/prompt": afterSteps(0, 1, look0),
		"r0/c1/upload/prompt": afterSteps(0, 1, look1),
		"r0/merged/prompt":    vptM, "r1/c1/upload/prompt": afterSteps(vptM, 1, look1),
		"r0/c0/eval/logits#0": (1.4 + vptM) / math.Hypot(0.6, 0.8+vptM) / math.Sqrt2,
		"r0/c0/eval/logits#1": (-0.2 - vptM) / math.Hypot(0.6, 0.8+vptM) / math.Sqrt2}},
	// One direction, all of it kept: the steps of FedVPT.
	{Method: "fedpr", Options: options{"vision_tokens": 1, "vision_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/draw/projector": 1, "r0/c0/upload/prompt": afterSteps(0, 1, look0), "r0/merged/prompt": vptM,
		"r1/c1/upload/prompt": afterSteps(vptM, 1, look1)}},
	{Method: "fedhpl", Options: options{"vision_tokens": 1, "vision_std": 0, "temperature": 2}, LR: lr, Epochs: 2,
		Want: map[string]float64{
			"r0/c0/down/hpl/n#0": 0, "r0/c0/s1/after/prompt": hpl0, "r0/c1/s1/after/prompt": hpl1,
			"r0/c0/upload/hpl/n#0": 1, "r0/c0/upload/hpl/n#1": 0, "r0/down/hpl/n#0": 1, "r0/down/hpl/n#1": 2,
			"r0/down/hpl/logits#0": (1.4 + hpl0) / math.Hypot(0.6, 0.8+hpl0) / math.Sqrt2,
			"r0/down/hpl/logits#3": (0.2 - hpl1) / math.Hypot(0.8, 0.6+hpl1) / math.Sqrt2,
			"r1/c0/s0/loss":        lossOf(look0(hpl0)), "r1/c0/s1/loss": lossOf(look0(hplThird)) + 4*hplKL}},
	// After one step client 1 still predicts class 0 for its images: its scores do not count.
	{Method: "fedhpl", Options: options{"vision_tokens": 1, "vision_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c1/upload/hpl/n#1": 0, "r0/down/hpl/n#1": 0, "r0/down/hpl/logits#2": 0, "r0/down/hpl/n#0": 1,
		"r1/c1/s0/loss": lossOf(look1(afterSteps(0, 1, look1)))}},
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, image.Methods, hands) }

// A term without weight is no part of the loss. Scores of 7 classes by class go both ways.
func TestTermsWithoutWeight(t *testing.T) {
	methodtest.CheckTermNames(t, "fedhpl", options{"gamma": 0.0}, "cross entropy")
	mvp := options{"heads": 1, "templates": []string{"a {}"}}
	methodtest.CheckTermNames(t, "fedmvp", mvp, "cross entropy, consistency")
	mvp["alpha"] = 0.0
	methodtest.CheckTermNames(t, "fedmvp", mvp, "cross entropy")
	for _, d := range image.Methods {
		if d.Name == "fedhpl" && d.Traffic.Numbers(layer.Sizes{Tokens: 3, Width: 5, Classes: 7}) != 98 {
			t.Errorf("%s does not send and receive 98 numbers", d.Name)
		}
	}
}

// FedMVP names what an image tower lacks.
func TestTowersWithoutPrompts(t *testing.T) {
	m := methodtest.Build(t, "fedmvp", nil, options{"heads": 3, "templates": []string{"a {}"}})
	fits := layer.PlaceholderClient
	fits.VisionWidth = 6
	resnet, heads, patches := fits, fits, fits
	resnet.VisionLayers, heads.VisionWidth, patches.Patches = 0, 8, 0
	for want, task := range map[string]method.ClientSpec{"is a ResNet; fedmvp needs a vision transformer": resnet,
		"option heads is 3; it must divide the image tower's width 8": heads,
		"fedmvp reads patch features, which backbone":                 patches, "": fits} {
		s := method.ScopeOf(m, task)
		m.Logits(s)
		if err := s.Graph().Err(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, image.Methods) }
