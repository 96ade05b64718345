package engine_test

import (
	"math"
	"testing"

	"promptfed/federation/engine"
	"promptfed/federation/engine/inference"
	"promptfed/federation/engine/local"
	"promptfed/federation/engine/spec"
	"promptfed/federation/methods"
	"promptfed/federation/methodtest"
	"promptfed/runtime/tensor"
)

// conditional is an experiment with a text prompt for each image; an image of the toy takes 4·4·4·6 bytes, of four
// classes and tokens.
func conditional(t *testing.T, with ...string) *spec.Experiment {
	t.Helper()
	m, err := methods.Build("cocoop", with, map[string]any{"reduce": 2, "init_std": 0.4})
	if err != nil {
		t.Fatal(err)
	}
	e := withMethod(m)
	e.Clients = methodtest.Alike(9, 5, 6, 3)
	return e
}

// Steps that compute one or three images of a batch of four at a time leave the prompts, losses and accuracies of whole
// batches, up to rounding; a wrapper's term that depends on no image counts once.
func TestStepsInPartsAreTheWhole(t *testing.T) {
	whole := mustRun(t, conditional(t, "fedprox"), engine.Settings{Terms: true})
	for _, images := range []int{1, 3} {
		e := conditional(t, "fedprox")
		e.Training.Memory = images*4*4*4*6 + 5
		got := mustRun(t, e, engine.Settings{Terms: true})
		for name, want := range whole.Prompts {
			if d := got.Prompts[name].Clone(); !d.IsInt() {
				d.Axpy(-1, want)
				if !(d.MaxAbs() <= 2e-6*max(1, want.MaxAbs())) {
					t.Errorf("%d images at a time: %s differs by %g", images, name, d.MaxAbs())
				}
			}
		}
		for i, r := range got.Records {
			if want := whole.Records[i]; math.Abs(r.Loss-want.Loss) > 1e-5 || r.Accuracy != want.Accuracy {
				t.Errorf("%d images at a time: round %d has loss %g and accuracy %g, want %g and %g", images, i, r.Loss,
					r.Accuracy, want.Loss, want.Accuracy)
			}
		}
	}
}

// The bound is told before anything runs; what does not fit is refused in one line.
func TestMemoryForImagesIsToldBefore(t *testing.T) {
	e := conditional(t)
	e.Training.Memory = 3 << 10
	note, err := e.ForImages(e.Clients[0].Backbone)
	// 3072 bytes hold 8 images of 384 bytes; a batch has 4.
	if want := "a text prompt for each image: 4 at a time of a batch of 4, about 0.00 GiB in each worker " +
		"(train.memory_gb)"; err != nil || note != want {
		t.Errorf("%q %v, want %q", note, err, want)
	}
	if note, err := toy(t).ForImages(e.Clients[0].Backbone); note != "" || err != nil {
		t.Errorf("a method without prompts for images says %q %v", note, err)
	}
	e.Training.Memory = 300
	refused(t, e, engine.Settings{}, "a text prompt for each image", "4 classes", "train.memory_gb")
}

// Class scores are computed in parts of the same size, and are the same.
func TestScoresInPartsAreTheWhole(t *testing.T) {
	var all []*tensor.Tensor
	for _, memory := range []int{0, 400, 1200} {
		e := conditional(t)
		e.Plan.Rounds, e.Training.Memory = 1, memory
		r := mustRun(t, e, engine.Settings{})
		w := local.NewWorker(e, local.Settings{})
		defer w.Close()
		scores, err := inference.Predict(w, t.Context(), e.Clients[0], len(e.Clients), r.Prompts,
			e.Clients[0].Test)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, scores)
	}
	for _, got := range all[1:] {
		same(t, got, all[0])
	}
}
