package methods_test

import (
	"math"

	"promptfed/federation/methodtest"
)

func init() { hands = append(hands, deepHands...) }

// loss0 is client 0's loss ln(1+e^-z) under a text prompt p, z = 1.6 p/r; slope0 is its derivative.
func loss0(p float64) float64 { return math.Log(1 + math.Exp(-1.6*p/math.Hypot(1, p))) }

// bothTowers are loss and slopes of client 0 under a text prompt p and an image prompt q: the scores of the two classes
// differ by z = 2 p (y+q) / (r s), r = √(x²+(y+q)²), s = √(1+p²), with dz/dq = 2 p x² / (s r³) and
// dz/dp = 2 (y+q) / (r s³); the loss is ln(1+e^-z).
func bothTowers(p, q float64) (loss, byP, byQ float64) {
	s, r := math.Hypot(1, p), math.Hypot(0.6, 0.8+q)
	z := 2 * p * (0.8 + q) / (r * s)
	d := -1 / (1 + math.Exp(z))
	return math.Log(1 + math.Exp(-z)), d * 2 * (0.8 + q) / (r * s * s * s), d * 2 * p * 0.36 / (s * r * r * r)
}

var (
	// IVLP's first round is PromptFL's: at p = 0 the image prompt has no slope. MaPLe's image prompt is p/2 there.
	ivlpLoss, ivlpP, ivlpQ    = bothTowers(-0.125, 0)
	mapleLoss, mapleP, mapleQ = bothTowers(-0.125, -0.0625)

	// FLoRA: the text is the prompt 1 + A B, at A = 1/2 and B = 0 with the slopes of p = 1: of B half of it, of A none.
	loraB0, loraB1 = -0.5 * lr * slope0(1), -0.5 * lr * slope1(1)
	loraM          = (loraB0 + 2*loraB1) / 3

	// pFedMMA: both adapters see 1, down and mid make 1 and 2 of it, up 0.4·2 for texts and -0.3·2 for images; half of
	// that is added to the prompts 1 and 0.
	mmaLoss, mmaP, mmaQ = bothTowers(1+0.4, -0.3)
	mmaFirst            = mmaPinned()

	// PromptSRC: of the class features (1,±p)/s those of the hand-written prompt, (1,±1)/√2, differ at p = 0 by
	// 1-1/√2 and 1/√2, 1/2 in the mean of the four numbers, with the slope -1 on either class: -1/2 in that mean.
	srcM = lr * (0.8 + 1 + 2*(-0.6+1)) / 3
)

var deepHands = []methodtest.Hand{
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
	// The cosine of (1,±p)/s and (1,±1)/√2 is 1/√2 at p = 0, with the slope 1/√2 in both classes.
	{Method: "kgcoop", Options: options{"tokens": 1, "lambda": 2.0}, LR: 0.5, Want: map[string]float64{
		"r0/c0/s0/loss": math.Ln2 + 2*(1-1/math.Sqrt2), "r0/c0/s0/grad/ctx": -0.8 - 2/math.Sqrt2,
		"r0/c1/upload/ctx": -0.5 * (0.6 - 2/math.Sqrt2)}},
	// The hand-written prompt takes all images for class 0: of client 0 both losses agree, of client 1 they are opposed
	// and nothing is left of the one number.
	{Method: "prograd", Options: options{"tokens": 1}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/grad/ctx": -0.8, "r0/c0/upload/ctx": 0.75, "r0/c1/s0/grad/ctx": 0, "r0/c1/upload/ctx": 0,
		"r0/merged/ctx": 0.25, "r1/c0/s0/loss": loss0(0.25)}},
	// A hidden unit that is off leaves the bias, which has the prompt's gradient: the prompt of each image is twice
	// PromptFL's in round 1.
	{Method: "cocoop", Options: options{"tokens": 1}, LR: lr,
		First: map[string]float64{"ctx": 0, "meta/1/b": -10, "meta/2/w": 0, "meta/2/b": 0},
		Want: map[string]float64{
			"r0/c0/s0/grad/ctx": -0.8, "r0/c0/s0/grad/meta/2/b": -0.8, "r0/c0/s0/grad/meta/2/w": 0,
			"r0/merged/ctx": -0.125, "r0/merged/meta/2/b": -0.125, "r1/c0/s0/loss": loss0(-0.25),
			"r1/c0/s0/grad/ctx": slope0(-0.25)}},
	// Both rounds count half where the mean lies between them; the first leaves half of its prompt with the server.
	{Method: "promptsrc", Options: options{"tokens": 1, "words": "", "vision_depth": 0, "text_weight": 2.0,
		"kl_weight": 0.0, "ensemble": []string{}}, LR: lr, First: map[string]float64{"text/prompt": 0},
		Want: map[string]float64{
			"r0/c0/s0/loss": math.Ln2 + 1, "r0/c0/s0/grad/text/prompt": -1.8, "r0/c1/s0/grad/text/prompt": -0.4,
			"r0/merged/text/prompt": srcM, "r0/kept/gpa/text/prompt": srcM / 2}},
	// One patch, one prompt: all mass goes from the one to the other, and the score is PromptFL's.
	{Method: "plot", Options: options{"tokens": 1, "n": 1, "init_std": 0}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Ln2, "r0/c0/upload/prompts": 0.75, "r0/merged/prompts": -0.125,
		"r1/c0/s0/loss": loss0(-0.125), "r1/c0/upload/prompts": second0}},
	// Two equal prompts have no spread and are as like as can be, and each has half of the gradient.
	{Method: "proda", Options: options{"tokens": 1, "n": 2, "together": 2, "position": "end", "init_std": 0,
		"lambda": 0.5}, LR: lr, Want: map[string]float64{
		"r0/c0/s0/loss": math.Ln2 + 0.5, "r0/c0/upload/prompts#0": 0.375, "r0/c0/upload/prompts#1": 0.375,
		"r0/merged/prompts#0": -0.0625, "r1/c0/s0/loss": loss0(-0.0625) + 0.5,
		"r1/c0/s0/grad/prompts#1": slope0(-0.0625) / 2}},
	{Method: "pfedmma", Options: options{"rank": 1, "alpha": 0.5, "grad_rescale": false}, LR: lr, First: mmaFirst,
		Want: map[string]float64{
			"r0/c0/s0/loss": mmaLoss, "r0/c0/s0/grad/text/up/b": mmaP / 2, "r0/c0/s0/grad/image/up/b": mmaQ / 2,
			"r0/c0/s0/grad/text/up/w": mmaP, "r0/c0/s0/grad/text/down/w": mmaP * 0.5 * 0.4 * 2,
			"r0/c0/s0/grad/mid/w": 0.5*mmaP*0.4 + 0.5*mmaQ*-0.3, "r1/c0/begin/text/up/b": -lr * mmaP / 2}},
	// The same, with the layers' gradients as if alpha were 1.
	{Method: "pfedmma", Options: options{"rank": 1, "alpha": 0.5}, LR: lr, First: mmaFirst,
		Want: map[string]float64{
			"r0/c0/s0/loss": mmaLoss, "r0/c0/s0/grad/text/up/b": mmaP, "r0/c0/s0/grad/image/up/b": mmaQ,
			"r0/c0/s0/grad/mid/w": mmaP*0.4 + mmaQ*-0.3}},
	{Method: "fedlora", Options: options{"maps": []string{"q"}, "rank": 1, "alpha": 1.0, "loss": "ce"}, LR: lr,
		First: map[string]float64{"text/q/a": 0.5, "text/q/b": 0}, Want: map[string]float64{
			"r0/c0/s0/loss": loss0(1), "r0/c0/s0/grad/text/q/a": 0, "r0/c0/upload/text/q/b": loraB0,
			"r0/c1/upload/text/q/b": loraB1, "r0/merged/text/q/b": loraM, "r1/c0/s0/loss": loss0(1 + loraM/2)}},
	// The mean of the products is 1/2 times that of B, and its factors are alike but for their signs.
	{Method: "fedlora", Options: options{"maps": []string{"q"}, "rank": 1, "alpha": 1.0, "loss": "ce",
		"aggregate": "product"}, LR: lr, First: map[string]float64{"text/q/a": 0.5, "text/q/b": 0},
		Want: map[string]float64{"r0/c0/upload/text/q/b": loraB0, "r1/c0/s0/loss": loss0(1 + loraM/2)}},
}

func mmaPinned() map[string]float64 {
	out := map[string]float64{"mid/w": 2, "mid/b": 0}
	for _, client := range []string{"c0/", "c1/"} {
		for tower, up := range map[string]float64{"text": 0.4, "image": -0.3} {
			out[client+tower+"/down/w"], out[client+tower+"/up/w"] = 1, up
		}
	}
	return out
}
