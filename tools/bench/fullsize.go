package bench

import (
	"fmt"

	"promptfed/federation/engine/spec"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
)

// fullPatches is how many patches an image of the full-size backbone has, as with ViT-B/32 or RN50 at 224 pixels.
const fullPatches = 49

// fullSize is a text tower of ViT-B/16's size with random weights, for any classes: its texts are cut into tokens by
// another backbone's tokenizer, whose numbers name rows of a random table.
type fullSize struct {
	tower
	words *bundle.Bundle
}

// FullSize gives every client of an experiment such a tower in place of its backbone, with weights that are written
// into dir, and random unit rows for its images and their patches; labels stay. Evaluation sets are left out.
func FullSize(e *spec.Experiment, words *bundle.Bundle, dir string) error {
	t, err := randomTower("random-vit-b16", clip.TextB, clip.VisionArch{}, dir)
	if err != nil {
		return err
	}
	own, err := words.Tokenizer()
	if err != nil {
		return err
	}
	t.tokens, t.sos = words.ClassTokens, own.SOS()
	b := &fullSize{t, words}
	drawn, task, patches := examples{}, b.Task(), []string{method.PatchesInput}
	for _, c := range e.Clients {
		c.Backbone = b
		c.Train = drawn.of(task, c.ID, "train", c.Train.Labels(), patches)
		c.Test = drawn.of(task, c.ID, "test", c.Test.Labels(), patches)
	}
	if s := e.Synthetic; s != nil {
		s.Backbone, s.Data = b, drawn.of(task, -1, "synthetic", s.Data.Labels(), patches)
	}
	e.EvaluationSets = nil
	return nil
}

// Task is what the engine builds a method for.
func (f *fullSize) Task() method.Task {
	t := f.tower.Task()
	if t.Patches == 0 { // without an image tower
		t.Patches, t.ImageSize = fullPatches, 224
	}
	return t
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
