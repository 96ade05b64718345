package experiment

import (
	"math"
	"slices"
	"testing"

	"promptfed/runtime/ort/orttest"
)

// FedAPPR's clients may each have a backbone exported in another layout: all four learn one prompt, without a
// bundle.json. One of the backbones is two folders.
func TestFourLayouts(t *testing.T) {
	orttest.RequireLibrary(t)
	const layouts = "../../models/bundle/exported/testdata/layouts/"
	c := smallConfig("fedappr")
	c.Backbones = []string{layouts + "transformersjs", layouts + "immich",
		"image=" + layouts + "fastembed/image,text=" + layouts + "fastembed/text", layouts + "winml"}
	c.Options = map[string]any{"tokens": 3, "warmup": 1, "hidden": 8}
	c.Partition.Clients, c.Participation, c.Train.Rounds = 4, 1, 3
	b := open(t, c)
	used := map[string]bool{}
	for _, k := range b.Experiment.Clients {
		used[k.Backbone.Name()] = true
	}
	if len(used) != 4 {
		t.Fatalf("clients have %v, want a backbone each", used)
	}
	// A step holds at least the features of its 8 images, 6 numbers of 4 bytes each.
	if bytes, err := b.Task.StepBytes(); err != nil || bytes < 8*6*4 {
		t.Errorf("a step of %g bytes, %v", bytes, err)
	}
	r := finish(t, b)
	last := r.Records[len(r.Records)-1]
	if len(last.Clients) != 4 || math.IsNaN(*last.Loss) || !(*last.Loss < *r.Records[1].Loss) {
		t.Errorf("%d clients, loss %g, in the first round %g", len(last.Clients), *last.Loss, *r.Records[1].Loss)
	}
	want := []int{3, b.Experiment.Clients[0].Backbone.Task().Width}
	if ctx := r.Prompts["shared/ctx"]; ctx == nil || !slices.Equal(ctx.Shape, want) {
		t.Errorf("the prompt is %v, want %v", ctx, want)
	}
}
