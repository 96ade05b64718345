package robust_test

import (
	"math"
	"slices"
	"testing"

	"promptfed/federation/methods/wrappers/robust"
	"promptfed/federation/methodtest"
)

type options = methodtest.Options

var zero = options{"tokens": 1, "init_std": 0}

const lr = methodtest.HandLR

var slope0, with = methodtest.Slope0, methodtest.Merge

// At the prompt 0 both clients have p = 1/2 for their label, where the slopes of cross entropy are -0.8 and 0.6. The
// slope of (1-p^q)/q is p^q times that.
func gce(q float64) methodtest.HandExample {
	return methodtest.HandExample{Method: "promptfl", With: []string{"gce"}, Options: with(zero, options{"q": q}),
		LR: lr, Want: map[string]float64{"r0/c0/s0/loss": (1 - math.Pow(0.5, q)) / q,
			"r0/c0/s0/grad/ctx": -0.8 * math.Pow(0.5, q), "r0/c1/s0/grad/ctx": 0.6 * math.Pow(0.5, q)}}
}

// Both classes score alike. Client 0 has one image of class 0 with half of its mass in each class; the first of the two
// counts, so it is clean. With uniform masses the same holds for client 1: its images of class 1 are noisy.
func divided(masses string, slope1 float64) methodtest.HandExample {
	return methodtest.HandExample{Method: "promptfl", With: []string{"nlprompt"}, Options: with(zero,
		options{"masses": masses}), LR: lr, Want: map[string]float64{"r0/c0/s0/draw/trusted": 1,
		"r0/c0/s0/loss": math.Log(2), "r0/c0/s0/grad/ctx": -0.8, "r0/c1/s0/grad/ctx": slope1}}
}

var hands = []methodtest.HandExample{
	// The uploads are 0.75 and -0.5625. The median of two is their mean, 0.09375, from which client 0 continues. Moves
	// of at most 0.5 are 0.5 and -0.5, whose mean weighted by 1 and 2 examples is -1/6.
	{Method: "promptfl", With: []string{"robust"}, Options: options{"tokens": 1, "init_std": 0, "kind": "median"},
		LR: lr, Want: map[string]float64{
			"r0/c0/upload/ctx": 0.75, "r0/merged/ctx": 0.09375, "r1/c0/upload/ctx": 0.09375 - lr*slope0(0.09375)}},
	{Method: "promptfl", With: []string{"robust"}, Options: options{"tokens": 1, "init_std": 0, "kind": "norm-clip",
		"clip": 0.5, "weighting": "examples"},
		LR: lr, Want: map[string]float64{"r0/merged/ctx": -1.0 / 6}},
	gce(0.5),
	gce(1),
	divided("uniform", 0.3),
	divided("labels", 0.6),
	divided("owned", 0.6),
	// q 0 is cross entropy.
	{Method: "promptfl", With: []string{"gce"}, Options: with(zero, options{"q": 0.0}), LR: lr,
		Want: map[string]float64{"r0/c0/s0/loss": math.Log(2), "r0/c0/s0/grad/ctx": -0.8, "r0/c1/s0/grad/ctx": 0.6}},
	// In the first pass the image of class 1 has the first of two equal classes, so it is noisy; in the second pass the
	// prompt tells the classes apart.
	{Method: "promptfl", With: []string{"nlprompt"}, Options: with(zero, options{"masses": "uniform"}), LR: lr,
		Epochs: 2, Mirrored: true, Want: map[string]float64{"r0/c0/s0/draw/trusted": 1, "r0/c0/s0/draw/trusted#1": 0,
			"r0/c0/s1/draw/trusted": 1, "r0/c0/s1/draw/trusted#1": 1}},
}

func TestTwoRoundsByHand(t *testing.T) { methodtest.CheckHandExamples(t, robust.Methods, hands) }

// Clean images come first in a pass, which is divided once, before steps that change what is clean.
func TestCleanImagesComeFirst(t *testing.T) {
	train := methodtest.TwoEpochs
	train.Optim.LR = 100
	got := methodtest.Traced(t, "promptfl", []string{"nlprompt"}, options{"masses": "labels"}, 1, train)
	clean := slices.Concat(got["r0/c0/s0/draw/trusted"].Data, got["r0/c0/s1/draw/trusted"].Data,
		got["r0/c0/s2/draw/trusted"].Data)
	if slices.Reverse(clean); !slices.IsSorted(clean) {
		t.Errorf("clean from the last image to the first: %v", clean)
	}
}

func TestPyTorch(t *testing.T) { methodtest.PyTorch(t, robust.Methods) }
