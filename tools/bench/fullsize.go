package bench

import (
	"fmt"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/tensor"
)

// fullPatches is how many patches an image of the full-size backbone has, as with ViT-B/32 or RN50 at 224 pixels.
const fullPatches = 49

// fullSize is a text tower of ViT-B/16's size with random weights, for any classes: its texts are cut into tokens by
// another backbone's tokenizer, whose numbers name rows of a random table. It has no image tower.
type fullSize struct {
	tower
	words *bundle.Bundle
}

// FullSize gives every client of an experiment such a tower in place of its backbone, with weights that are written
// into dir, and random unit rows for its images and their patches; labels stay. Evaluation sets are left out.
func FullSize(e *spec.Experiment, words *bundle.Bundle, dir string) error {
	t, err := randomTower(clip.TextB, dir)
	if err != nil {
		return err
	}
	own, err := words.Tokenizer()
	if err != nil {
		return err
	}
	t.tokens, t.sos = words.ClassTokens, own.SOS()
	b := &fullSize{t, words}
	for _, c := range e.Clients {
		c.Backbone = b
		c.Train = b.examples(e.Plan.Seed, c.ID, "train", c.Train.Labels())
		c.Test = b.examples(e.Plan.Seed, c.ID, "test", c.Test.Labels())
	}
	if s := e.Synthetic; s != nil {
		s.Backbone, s.Data = b, b.examples(e.Plan.Seed, -1, "synthetic", s.Data.Labels())
	}
	e.EvaluationSets = nil
	return nil
}

// Name is that of the tower's size.
func (f *fullSize) Name() string { return "random-vit-b16" }

// Task is what the engine builds a method for.
func (f *fullSize) Task() method.Task {
	return method.Task{Width: f.text.Width, Dim: f.text.EmbedDim, Patches: fullPatches, Scale: f.scale, ImageSize: 224}
}

// Sentences are whole texts through the tower.
func (f *fullSize) Sentences(g *graph.Graph, texts []string) (graph.Node, error) {
	words, err := f.words.Tokenizer()
	if err != nil {
		return graph.Node{}, err
	}
	ids := make([][]int, len(texts))
	for i, text := range texts {
		inner, err := words.Encode(text)
		if err != nil {
			return graph.Node{}, err
		}
		if ids[i] = append(append([]int{words.SOS()}, inner...), words.EOT()); len(ids[i]) > f.text.Context {
			return graph.Node{}, fmt.Errorf("text %.60q takes %d tokens, the context has %d", text, len(ids[i]),
				f.text.Context)
		}
	}
	return f.text.Sequences(g, f.weights, ids, f.embed), g.Err()
}

// examples are unit rows of random features for some labels.
func (f *fullSize) examples(seed uint64, client int, what string, labels []int64) *spec.Features {
	rows := func(what string, shape ...int) spec.Rows {
		x := method.Draw(seed, client, what, shape, 1)
		d := shape[len(shape)-1]
		for at := 0; at < x.Len(); at += d {
			row := tensor.Of(x.Data[at:at+d], d)
			scale := float32(1 / row.Norm())
			for j := range row.Data {
				row.Data[j] *= scale
			}
		}
		return spec.InMemory{Tensor: x}
	}
	n, d := len(labels), f.text.EmbedDim
	return &spec.Features{Class: labels, Views: []spec.Rows{rows(what+" images", n, d)},
		Patches: []spec.Rows{rows(what+" patches", n, fullPatches, d)}}
}
