package multimodal

import (
	"math"

	"promptfed/federation/method"
	"promptfed/federation/methods/parts/layer"
	"promptfed/federation/methods/parts/prompts"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// PromptSRC learns deep prompts of both towers, as IVLP does, and holds them by three terms beside cross entropy:
// with t_c and f the class and image features [D] under the prompts, h_c and f0 those of hand-written prompts and of
// the tower without prompts, and q = softmax of scores,
//
//	text_weight mean|t_c - h_c| + image_weight mean|f - f0| + kl_weight (1/C) KL(q0 ‖ q),
//
// means over all numbers, and ends with a mean of the prompts of all rounds t = 1..T, weighted by
// exp(-(t-mu)²/(2 sigma²)), mu = gpa_mean T and sigma = gpa_std T. Rounds continue from FedAvg's prompts; the last
// round ends with the mean.
//
// Khattak et al., Self-regulating Prompts: Foundational Model Adaptation without Forgetting, ICCV 2023, eq. 3-8. Notes:
//   - weights 25, 10 and 1, the division of the divergence by C too, and the teacher's probabilities first in it are
//     the public code's; the paper's text has the student's first;
//   - the paper takes the Gaussian mean over epochs of one training, with (mu, sigma) of (15, 1) for 20 epochs, which
//     gpa_mean 0.75 and gpa_std 0.05 are; here it is over rounds, on the server (gpa: rounds), or absent (none);
//   - h_c is the unit mean of the features of all templates, which are not made unit before, as in the code; its 60
//     templates are those of option ensemble and data.template here.
type PromptSRC struct {
	method.FedAvg
	prompts.Deep `config:",squash"`

	Ensemble    []string `config:"ensemble" help:"templates: imagenet-7, or texts with {}; empty: data.template only"`
	TextWeight  float64  `config:"text_weight" in:"0.." help:"weight of the distance of class features"`
	ImageWeight float64  `config:"image_weight" in:"0.." help:"weight of the distance of image features"`
	KLWeight    float64  `config:"kl_weight" in:"0.." help:"weight of the divergence of class probabilities"`
	GPA         string   `config:"gpa" in:"rounds|none" help:"Gaussian-weighted mean of prompts: over rounds or none"`
	GPAMean     float64  `config:"gpa_mean" in:"0..1" help:"round with the largest weight, as a share of all rounds"`
	GPAStd      float64  `config:"gpa_std" in:"1e-3.." help:"standard deviation of the weights, over all rounds"`
}

var promptSRCDef = layer.Def{Name: "promptsrc", Title: "PromptSRC",
	Paper: "FedAvg of Khattak et al., Self-regulating Prompts, ICCV 2023",
	Default: PromptSRC{Deep: prompts.DefaultDeep, Ensemble: []string{"imagenet-7"}, TextWeight: 25, ImageWeight: 10,
		KLWeight: 1, GPA: "rounds", GPAMean: 0.75, GPAStd: 0.05}}

// Check reports templates of the ensemble without a place {} for the class name.
func (m PromptSRC) Check() error { return prompts.CheckEnsemble("ensemble", m.Ensemble) }

// Properties takes the server's step where the last round ends with the Gaussian mean: a later step would move it.
func (m PromptSRC) Properties() method.Properties {
	properties := m.FedAvg.Properties()
	if m.GPA != "none" {
		properties.Roles = map[method.Role]string{method.ServerStep: "set options.gpa: none"}
		properties.LastRound = true
	}
	return properties
}

// Loss adds the three terms to cross entropy. A term of weight 0 is not computed, and neither is that of image features
// where the image tower has no prompts. No teacher has a gradient.
func (m PromptSRC) Loss(scope *method.Scope, logits graph.Node) graph.Node {
	loss := m.FedAvg.Loss(scope, logits)
	hand := scope.HandTextFeatures(method.HandTexts{Templates: prompts.Ensemble(m.Ensemble), Raw: true})
	add := func(name string, weight float64, term func() graph.Node) {
		if weight > 0 {
			loss = loss.Add(scope.Term(name, term().MulScalar(weight)))
		}
	}

	add("text features", m.TextWeight, func() graph.Node { return m.Text(scope).Sub(hand).Abs().Mean() })
	if m.VisionDepth > 0 { // else they are the same
		add("image features", m.ImageWeight,
			func() graph.Node { return m.Image(scope).Sub(scope.Image()).Abs().Mean() })
	}

	add("class probabilities", m.KLWeight, func() graph.Node {
		teacher := scope.Cosine(scope.Image(), hand).LogSoftmax(-1)
		return teacher.Exp().Mul(teacher.Sub(logits.LogSoftmax(-1))).Mean()
	})

	return loss
}

// Names in the server's state.
const (
	meanOfRounds = "gpa/"       // prefixes the weighted sums of the prompts after the rounds so far
	roundsInMean = "gpa rounds" // [1], how many rounds these are
)

// Merge averages the prompts; the last round leaves the mean of the prompts after each round. A round without an upload
// has the prompts of the round before.
func (m PromptSRC) Merge(global *method.Global, ups []method.Upload) error {
	before := global.Shared
	if err := m.FedAvg.Merge(global, ups); err != nil || m.GPA == "none" {
		return err
	}

	rounds := global.Rounds.Total()
	weights := gaussian(rounds, m.GPAMean*float64(rounds), m.GPAStd*float64(rounds))
	kept, done := 0.0, global.State[roundsInMean] // kept is the weight of rounds without an upload
	if done == nil {
		done = tensor.New(1)
	}

	for round := int(done.Data[0]); round < min(global.Round, rounds); round++ {
		kept += weights[round]
	}

	global.State[roundsInMean] = tensor.Of([]float32{float32(global.Round + 1)}, 1)
	for _, name := range global.Shared.Names() {
		sum := global.State[meanOfRounds+name]
		if sum == nil {
			sum = tensor.New(global.Shared[name].Shape...)
			global.State[meanOfRounds+name] = sum
		}
		if kept > 0 {
			sum.Axpy(kept, before[name])
		}
		if global.Round < len(weights) {
			sum.Axpy(weights[global.Round], global.Shared[name])
		}
		if global.Round == rounds-1 {
			global.Shared[name] = sum.Clone()
		}
	}

	return nil
}

// gaussian returns weights of rounds 1..n that sum up to 1.
func gaussian(n int, mean, std float64) []float64 {
	out := make([]float64, n)
	least := math.Inf(1) // so that the largest is 1 before they are divided by their sum
	for i := range out {
		out[i] = (float64(i+1) - mean) * (float64(i+1) - mean) / (2 * std * std)
		least = min(least, out[i])
	}

	sum := 0.0
	for i := range out {
		out[i] = math.Exp(least - out[i])
		sum += out[i]
	}

	for i := range out {
		out[i] /= sum
	}

	return out
}
