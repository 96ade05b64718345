package methods_test

import (
	"math"

	"promptfed/federation/methodtest"
)

// A prompt for each of two classes, both from 0: the scores of an image (x,y) differ by z = (x+yp)/r_p - (x-yq)/r_q,
// r_p = √(1+p²), and half of PromptFL's slope goes to each, -0.4 on client 0 and 0.3 on client 1. With owners each
// class has the prompt of the client that has examples of it.
var eachZ = (0.6+0.8*0.375)/math.Hypot(1, 0.375) - (0.6+0.8*0.28125)/math.Hypot(1, 0.28125)

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
	)
}
