package client_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/client"
	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment/inference"
	"promptfed/federation/methodtest"
	"promptfed/models/clip"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// onOneBackbone returns an experiment of a method, whose clients share a backbone.
func onOneBackbone(t *testing.T, name string, with []string, options map[string]any) *spec.Experiment {
	t.Helper()
	m := buildMethod(t, name, with, options)
	e := withMethod(m)
	e.Clients = methodtest.ClientsOfOneBackbone(9, 5, 6, 3)
	return e
}

// withPromptPerImage returns an experiment with a text prompt for each image. An image of the toy takes 4·4·4·6
// bytes, for four classes and four tokens.
func withPromptPerImage(t *testing.T, with ...string) *spec.Experiment {
	return onOneBackbone(t, "cocoop", with, map[string]any{"reduce": 2, "init_std": 0.4})
}

// withImagePrompts returns an experiment of a method whose steps run the image tower, with three rows and two tokens.
func withImagePrompts(t *testing.T, name string, with ...string) *spec.Experiment {
	return onOneBackbone(t, name, with, map[string]any{"vision_tokens": 2})
}

// withPatches returns an experiment of a method that computes prompts of the image tower from each image's patches.
func withPatches(t *testing.T) *spec.Experiment {
	return onOneBackbone(t, "fedmvp", nil, map[string]any{"mult": 1, "alpha": 0.2})
}

// withRoutedTokens returns an experiment of a method that computes text prompts from each image's tokens, in a loop.
func withRoutedTokens(t *testing.T) *spec.Experiment {
	t.Helper()
	m := buildMethod(t, "trip", nil, map[string]any{"tokens": 4, "iters": 20})
	e := withMethod(m)
	e.Clients = methodtest.Clients(9, 5, 6, 3)
	return e
}

// Steps that compute one image of a batch of four at a time, or at most three, have the prompts, losses and accuracies
// of whole batches, up to rounding. A wrapper's term that depends on no image counts once.
func TestStepsInPartsAreTheWhole(t *testing.T) {
	task := methodtest.ClientsOfOneBackbone(1)[0].Backbone.Task()
	image := clip.BlocksStepBytes(5, task.VisionWidth, task.VisionUnits, task.VisionLayers, false)
	frozen := clip.BlocksStepBytes(5, task.VisionWidth, task.VisionUnits, 0, false) // FedNTD's received prompt
	// FedMVP: each image has four tokens of its own. The plain tower needs less, and so do embeddings.
	withTokens := clip.BlocksStepBytes(7, task.VisionWidth, task.VisionUnits, task.VisionLayers, false)
	plain := clip.BlocksStepBytes(3, task.VisionWidth, task.VisionUnits, 0, false)
	for _, c := range []struct {
		name  string
		make  func() *spec.Experiment
		bytes int // for one image
	}{
		{"cocoop", func() *spec.Experiment { return withPromptPerImage(t, "fedprox") }, 4 * 4 * 4 * 6},
		{"fedvpt", func() *spec.Experiment { return withImagePrompts(t, "fedvpt", "fedprox", "fedntd") },
			image + frozen},
		{"fedhpl", func() *spec.Experiment { return withImagePrompts(t, "fedhpl") }, image},
		{"fedmvp", func() *spec.Experiment { return withPatches(t) }, withTokens + 2*plain},
		{"trip", func() *spec.Experiment { return withRoutedTokens(t) }, 2 * 4 * 4 * 4 * 6},
	} {
		whole := mustRun(t, c.make(), engine.Settings{Client: client.Settings{Terms: true}})
		for _, images := range []int{1, 3} {
			e := c.make()
			e.Training.Memory = images*c.bytes + 5
			if note, err := e.MemoryNote(e.Clients[0].Backbone, graph.CPUKernels); err != nil ||
				!strings.Contains(note, fmt.Sprintf("%d at a time of a batch of 4", (images+1)/2)) { // 3: twice 2
				t.Errorf("%s says %q %v", c.name, note, err)
			}
			got := mustRun(t, e, engine.Settings{Client: client.Settings{Terms: true}})
			for name, want := range whole.Prompts {
				if d := got.Prompts[name].Clone(); !d.IsInt() {
					d.Axpy(-1, want)
					if !(d.MaxAbs() <= 2e-6*max(1, want.MaxAbs())) {
						t.Errorf("%s, %d images at a time: %s differs by %g", c.name, images, name, d.MaxAbs())
					}
				}
			}
			for i, r := range got.Records {
				if want := whole.Records[i]; math.Abs(*r.Loss-*want.Loss) > 1e-5 ||
					r.Evaluation.Accuracy() != want.Evaluation.Accuracy() {
					t.Errorf("%s, %d images at a time: round %d has loss %g and accuracy %g, want %g and %g", c.name,
						images, i, *r.Loss, r.Evaluation.Accuracy(), *want.Loss, want.Evaluation.Accuracy())
				}
			}
		}
	}
}

// The run prints its memory bound before it starts. If the memory does not fit, the run is refused in one line.
func TestMemoryForImagesIsToldBefore(t *testing.T) {
	e := withPromptPerImage(t)
	e.Training.Memory = 3 << 10
	note, err := e.MemoryNote(e.Clients[0].Backbone, graph.CPUKernels)
	// 3072 bytes hold 8 images of 384 bytes; a batch has 4.
	if want := "a text prompt for each image: 4 at a time of a batch of 4, about 0.00 GiB in each worker " +
		"(train.memory_gb)"; err != nil || note != want {
		t.Errorf("%q %v, want %q", note, err, want)
	}
	if note, err := toy(t).MemoryNote(e.Clients[0].Backbone, graph.CPUKernels); note != "" || err != nil {
		t.Errorf("a method without prompts for images says %q %v", note, err)
	}
	e = withImagePrompts(t, "fedvpt")
	e.Training.Memory = 300
	refused(t, e, engine.Settings{}, "the image tower in every step", "one image", "train.memory_gb")
}

// Prompts for each class too: the toy's four take 4·2·6 numbers each, for one class and two tokens of width 6.
func TestMemoryForClassesIsToldBefore(t *testing.T) {
	m := buildMethod(t, "promptfl", nil, map[string]any{"class_specific": true, "tokens": 2})
	e := withMethod(m)
	for memory, says := range map[int]string{4 * 4 * 2 * 6: "", 4*4*2*6 - 1: "2 of 4 classes at a time, "} {
		e.Training.Memory = memory
		note, err := e.MemoryNote(e.Clients[0].Backbone, graph.CPUKernels)
		if want := "a text prompt for each class: " + says + "about 0.00 GiB in each worker (train.memory_gb)"; err !=
			nil || note != want {
			t.Errorf("%q %v, want %q", note, err, want)
		}
	}
}

// Class scores in parts of the same size equal those of whole batches.
func TestScoresInPartsAreTheWhole(t *testing.T) {
	var all []*tensor.Tensor
	for _, memory := range []int{0, 400, 1200} {
		e := withPromptPerImage(t)
		e.Plan.Rounds, e.Training.Memory = 1, memory
		r := mustRun(t, e, engine.Settings{})
		w := client.NewWorker(e, client.Settings{})
		defer w.Close()
		scores, err := inference.Predict(t.Context(), w, e.Clients[0], len(e.Clients), r.Prompts, e.Clients[0].Test)
		goldentest.NoError(t, err)
		all = append(all, scores)
	}
	for _, got := range all[1:] {
		same(t, got, all[0])
	}
}
