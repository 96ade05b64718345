package methods_test

import (
	"math"

	"promptfed/federation/methodtest"
)

// A prompt for each of two classes, both from 0: the scores of an image (x,y) differ by z = (x+yp)/r_p - (x-yq)/r_q,
// r_p = √(1+p²), and half of PromptFL's slope goes to each, -0.4 on client 0 and 0.3 on client 1. With owners each
// class has the prompt of the client that has examples of it.
var eachZ = (0.6+0.8*0.375)/math.Hypot(1, 0.375) - (0.6+0.8*0.28125)/math.Hypot(1, 0.28125)

// PromptFolio from global = local = 0 with theta 0.4: z = 2y (0.6 g/r_g + 0.4 l/r_l), so that dz/dg = 1.2 y and
// dz/dl = 0.8 y, and the slopes are -0.48 and -0.32 on client 0, 0.36 and 0.24 on client 1. Client 0 ends with 0.45
// and 0.3, client 1 with -0.3375 and -0.225; the mean of the global ones is -0.075. With renorm the mixtures of both classes, 0.6
// (1,±g)/r_g + 0.4 (1,±l)/r_l, are divided by their length: 1 at 0, so that the first step is the same.
var (
	folioFirst = map[string]float64{"global": 0, "c0/local": 0, "c1/local": 0}

	folioX = 0.6/math.Hypot(1, 0.075) + 0.4/math.Hypot(1, 0.3)
	folioY = 0.6*-0.075/math.Hypot(1, 0.075) + 0.4*0.3/math.Hypot(1, 0.3)
)

// FedMGP with two groups, both from 0: each has half of PromptFL's slope, and groups that are alike have the cosine 1,
// whose slope is 0. Whichever of its two groups of texts client 0 draws, it uploads 0.375, and client 1 -0.28125; then
// client 0 has 0.375 and their mean by examples. A prompt of the image tower moves nothing while both classes are alike.
var (
	mgpMean = (0.375 - 2*0.28125) / 3
	mgpLike = (1 + 0.375*mgpMean) / math.Hypot(1, 0.375) / math.Hypot(1, mgpMean)
)

func init() {
	each := options{"tokens": 1, "init_std": 0, "class_specific": true}
	hands = append(hands,
		methodtest.Hand{Method: "promptfl", Options: each, LR: lr, Want: map[string]float64{
			"r0/c0/s0/loss": math.Ln2, "r0/c0/s0/grad/ctx#0": -0.4, "r0/c0/s0/grad/ctx#1": -0.4,
			"r0/c1/upload/ctx#0": -0.28125, "r0/merged/ctx#0": -0.0625, "r0/merged/ctx#1": -0.0625}},
		methodtest.Hand{Method: "promptfl", Options: with(each, options{"class_average": "owners"}), LR: lr,
			Want: map[string]float64{"r0/c1/upload/class/n#0": 0, "r0/c1/upload/class/n#1": 2,
				"r0/merged/ctx#0": 0.375, "r0/merged/ctx#1": -0.28125,
				"r1/c0/s0/loss": math.Log(1 + math.Exp(-eachZ))}},
		methodtest.Hand{Method: "coop", Options: each, LR: lr, Want: map[string]float64{
			"r0/c0/s0/after/ctx#0": 0.375, "r1/c1/begin/ctx#1": -0.28125}},
		methodtest.Hand{Method: "fedmgp", Options: options{"tokens": 1, "words": "", "init_std": 0, "groups": 2,
			"exchanged": 1, "vision_tokens": 1, "vision_std": 0, "lambda": 0.5}, LR: lr, Want: map[string]float64{
			"r0/c0/s0/loss": math.Ln2 + 0.5*2, "r0/c0/s0/grad/text/groups#0": -0.4,
			"r0/c0/s0/grad/text/groups#1": -0.4, "r0/c0/upload/text/global": 0.375,
			"r0/c1/upload/text/global": -0.28125, "r0/merged/text/global": mgpMean, "r0/merged/image/global": 0,
			"r0/c0/eval/logits#0": ((0.6+0.8*0.375)/math.Hypot(1, 0.375) + (0.6+0.8*mgpMean)/math.Hypot(1, mgpMean)) / 2,
			"r1/c0/s0/loss":       (loss0(0.375)+loss0(mgpMean))/2 + 0.5*(mgpLike+1)}},
		methodtest.Hand{Method: "promptfolio", Options: options{"tokens": 1}, LR: lr, First: folioFirst,
			Want: map[string]float64{"r0/c0/upload/global": 0.45, "r0/c1/upload/global": -0.3375,
				"r0/merged/global": -0.075, "r0/c0/s0/after/local": 0.3, "r0/c1/s0/after/local": -0.225,
				"r1/c0/begin/local": 0.3, "r1/c0/s0/loss": math.Log(1 + math.Exp(-1.6*folioY))}},
		methodtest.Hand{Method: "promptfolio", Options: options{"tokens": 1, "renorm": true}, LR: lr,
			First: folioFirst, Want: map[string]float64{"r0/c0/upload/global": 0.45, "r0/merged/global": -0.075,
				"r1/c0/s0/loss": math.Log(1 + math.Exp(-1.6*folioY/math.Hypot(folioX, folioY)))}},
	)
}
