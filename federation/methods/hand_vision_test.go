package methods_test

import (
	"math"

	"promptfed/federation/methodtest"
)

// A prompt p of the pencil's image tower turns an image (x,y) into (x,y+p)/r, r = √(x²+(y+p)²). The hand-written
// prompts have the features (1,±1)/√2, so that the scores of the two classes differ by z = √2 (y+p)/r, and dz/dp =
// √2 x²/r³. Client 0, (0.6,0.8) of class 0, has the loss ln(1+e^-z), client 1, (0.8,0.6) of class 1, ln(1+e^z).

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

// after gives p after some steps of a slope.
func after(p float64, steps int, look func(float64) (loss, slope float64)) float64 {
	for range steps {
		_, slope := look(p)
		p -= lr * slope
	}
	return p
}

func lossOf(loss, _ float64) float64 { return loss }

var (
	vptM = (after(0, 1, look0) + 2*after(0, 1, look1)) / 3

	// FedHPL, two steps a round. After them both clients are right on all they have. A class of only one client is
	// taught by that client's own scores, so that the first step of round 1 has no second term; the second has T² times
	// the divergence of two-class probabilities, which depend on z/T alone.
	hpl0, hpl1 = after(0, 2, look0), after(0, 2, look1)
	hplThird   = after(hpl0, 1, look0)
	hplZ, _    = look(0.6, 0.8, hpl0)
	hplNow, _  = look(0.6, 0.8, hplThird)
	hplP       = 1 / (1 + math.Exp(-hplZ/2))
	hplQ       = 1 / (1 + math.Exp(-hplNow/2))
	hplKL      = hplP*math.Log(hplP/hplQ) + (1-hplP)*math.Log((1-hplP)/(1-hplQ))

	// pFedDC with one token each: softmax over one key is 1, so that the tower gets own + v o shared. With v o = 1/2,
	// text prompts t and image prompts p, both 0 at first, z = 2 t (y+p) / (r s), s = √(1+t²): in round 0 only t has a
	// slope, -y and y for the two clients, half of it in the shared prompt, and none in the weights, the shared prompts
	// being 0.
	dcM = lr * (0.4 - 2*0.3) / 3        // text/shared
	dcT = lr*0.8 + dcM/2                // what client 0's text tower gets in round 1
	dcS = math.Hypot(1, dcT)            // p is still 0 and r is 1
	dcZ = 2 * dcT * 0.8 / dcS           // of client 0
	dcG = -1 / (1 + math.Exp(dcZ))      // dL/dz
	dcP = dcG * 2 * dcT / dcS * 0.36    // dL/dp: d((y+p)/r)/dp = x²/r³
	dcD = dcG * 1.6 / (dcS * dcS * dcS) // dL/dt
)

var visionHands = []methodtest.Hand{
	{Method: "fedvpt", Options: options{"vision_tokens": 1, "vision_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": lossOf(look0(0)), "r0/c0/upload/prompt": after(0, 1, look0), "r0/c1/upload/prompt": after(0, 1,
			look1),
		"r0/merged/prompt": vptM, "r1/c1/upload/prompt": after(vptM, 1, look1),
		"r0/c0/eval/logits#0": (1.4 + vptM) / math.Hypot(0.6, 0.8+vptM) / math.Sqrt2,
		"r0/c0/eval/logits#1": (-0.2 - vptM) / math.Hypot(0.6, 0.8+vptM) / math.Sqrt2}},
	// One direction, all of it kept: FedVPT's steps.
	{Method: "fedpr", Options: options{"vision_tokens": 1, "vision_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/draw/projector": 1, "r0/c0/upload/prompt": after(0, 1, look0), "r0/merged/prompt": vptM,
		"r1/c1/upload/prompt": after(vptM, 1, look1)}},
	{Method: "fedhpl", Options: options{"vision_tokens": 1, "vision_std": 0, "temperature": 2}, LR: lr, Epochs: 2,
		Want: map[string]float64{
			"r0/c0/down/hpl/n#0": 0, "r0/c0/s1/after/prompt": hpl0, "r0/c1/s1/after/prompt": hpl1,
			"r0/c0/upload/hpl/n#0": 1, "r0/c0/upload/hpl/n#1": 0, "r0/down/hpl/n#0": 1, "r0/down/hpl/n#1": 2,
			"r0/down/hpl/logits#0": (1.4 + hpl0) / math.Hypot(0.6, 0.8+hpl0) / math.Sqrt2,
			"r0/down/hpl/logits#3": (0.2 - hpl1) / math.Hypot(0.8, 0.6+hpl1) / math.Sqrt2,
			"r1/c0/s0/loss":        lossOf(look0(hpl0)), "r1/c0/s1/loss": lossOf(look0(hplThird)) + 4*hplKL}},
	// After one step client 1 still takes its images for class 0: its scores do not count.
	{Method: "fedhpl", Options: options{"vision_tokens": 1, "vision_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c1/upload/hpl/n#1": 0, "r0/down/hpl/n#1": 0, "r0/down/hpl/logits#2": 0, "r0/down/hpl/n#0": 1,
		"r1/c1/s0/loss": lossOf(look1(after(0, 1, look1)))}},
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
