package methodtest

import (
	"maps"
	"math"
	"slices"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods/parts/layer"
	"promptfed/runtime/optim"
	"promptfed/runtime/tensor"
)

// Options are options of a stack.
type Options = map[string]any

// Merge returns the options of base, and of more in place of them.
func Merge(base, more Options) Options {
	out := Options{}
	maps.Copy(out, base)
	maps.Copy(out, more)
	return out
}

// Numbers of HandExample. With r = √(1+p²) the unit features are (1,p)/r and (1,-p)/r, so that for an image (x,y)
// the two logits differ by z = 2yp/r, and dz/dp = 2y/r³. Client 0 (y = 0.8, class 0) has the loss ln(1+e^-z) with the
// slope
// -1.6/r³ / (1+e^z), client 1 (y = 0.6, class 1) the loss ln(1+e^z) with the slope 1.2/r³ / (1+e^-z). At p = 0 the
// slopes are -0.8 and 0.6.
const (
	// HandLR moves client 0 of PromptFL from 0 to End0 and client 1 to End1 in one step.
	HandLR     = 0.9375
	End0, End1 = 0.75, -0.5625
	EndMean    = (End0 + 2*End1) / 3 // by examples
)

// Second0 is client 0's prompt after a step from EndMean.
var Second0 = EndMean - HandLR*Slope0(EndMean)

// Prox0 is client 0's prompt after a second step from End0 with FedProx and mu 0.4, whose received prompt is 0.
var Prox0 = End0 - HandLR*(Slope0(End0)+0.4*End0)

// OverPromptFL returns the HandExample of a wrapper with options over PromptFL from 0.
func OverPromptFL(wrapper string, more Options, want map[string]float64) HandExample {
	return HandExample{Method: "promptfl", With: []string{wrapper}, LR: HandLR, Want: want,
		Options: Merge(Options{"tokens": 1, "init_std": 0}, more)}
}

// CheckHandExamples checks hands, of which every definition must have one.
func CheckHandExamples(t *testing.T, defs []layer.Def, hands []HandExample) {
	for _, h := range hands {
		t.Run(h.Method, h.Check)
	}

	for _, d := range defs {
		if !slices.ContainsFunc(hands, func(h HandExample) bool {
			return h.Method == d.Name && len(h.With) == 0 || slices.Contains(h.With, d.Name)
		}) {
			t.Errorf("%s has no numbers by hand", d.Name)
		}
	}
}

// BothTowers returns loss and slopes of client 0 under a text prompt p and an image prompt q: the scores of the two
// classes differ by z = 2 p (y+q) / (r s), r = √(x²+(y+q)²), s = √(1+p²), with dz/dq = 2 p x² / (s r³) and
// dz/dp = 2 (y+q) / (r s³); the loss is ln(1+e^-z).
func BothTowers(p, q float64) (loss, byP, byQ float64) {
	s, r := math.Hypot(1, p), math.Hypot(0.6, 0.8+q)
	z := 2 * p * (0.8 + q) / (r * s)
	d := -1 / (1 + math.Exp(z))
	return math.Log(1 + math.Exp(-z)), d * 2 * (0.8 + q) / (r * s * s * s), d * 2 * p * 0.36 / (s * r * r * r)
}

// Loss0 returns the loss of client 0 under a text prompt p.
func Loss0(p float64) float64 { return math.Log(1 + math.Exp(-1.6*p/math.Hypot(1, p))) }

// Slope0 returns the derivative of Loss0.
func Slope0(p float64) float64 {
	r := math.Sqrt(1 + p*p)
	return -1.6 / (r * r * r) / (1 + math.Exp(1.6*p/r))
}

// Slope1 returns the derivative of the loss of client 1.
func Slope1(p float64) float64 {
	r := math.Sqrt(1 + p*p)
	return 1.2 / (r * r * r) / (1 + math.Exp(-1.2*p/r))
}

// TwoEpochs is a training with momentum and weight decay.
var TwoEpochs = spec.Training{Epochs: 2, Optim: optim.Config{Name: "sgd", LR: 0.2, Momentum: 0.9, WeightDecay: 0.01}}

// Traced returns the trace of some rounds of a stack on three clients.
func Traced(t *testing.T, name string, with []string, o Options, rounds int, train spec.Training) tensor.Map {
	t.Helper()
	train.Batch = 4
	_, rec := traced(t, &spec.Experiment{Method: Build(t, name, with, o), Classes: Classes,
		Template: "a photo of a {}.", Clients: ClientsOfOneBackbone(9, 5, 6),
		Plan: spec.Plan{Rounds: rounds, Seed: 5}, Training: train}, engine.Settings{})
	return rec.Tensors
}
