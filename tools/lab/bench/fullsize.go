package bench

import (
	"cmp"
	"fmt"

	"promptfed/federation/engine/spec"
	"promptfed/federation/experiment"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// fullPatches is the number of patches per image of a backbone without an image tower.
const fullPatches = 49

// fullSize is a backbone of ViT-B/16's size with random weights for any classes. Another backbone's tokenizer splits
// texts into tokens, and the token numbers select rows of a random table.
type fullSize struct {
	spec.Backbone
	dir string
}

func (f fullSize) WeightsDir() string { return f.dir }

// fullSizeOf returns a backbone with the given tower and the tokenizer of words.
func fullSizeOf(t tower, words *bundle.Bundle) fullSize {
	b := &bundle.Bundle{Name: t.name, Text: t.text.TextArch, Vision: t.vision.VisionArch, LogitScale: t.scale,
		Dir: words.Dir, Vocabulary: words.Vocabulary, Texts: words.Texts, TokenRows: words.TokenRows, Towers: random{t}}
	b.Preprocess.Size = cmp.Or(t.vision.Image, 224)
	return fullSize{experiment.Backbone{Bundle: b}, t.dir}
}

// random presents the towers of a tower in the way a bundle does.
type random struct{ tower }

func (r random) Image(g *graph.Graph, pixels graph.Node, p clip.VisionPrompts) (image, patches graph.Node, err error) {
	if r.vision.Width == 0 {
		return image, patches, fmt.Errorf("backbone %s has no image tower here", r.name)
	}
	image, patches = r.vision.PromptedFeatures(g, r.weights, pixels, p)
	return image, patches, g.Err()
}

func (r random) ClassFeatures(g *graph.Graph, s *clip.Suffixes, prompts []clip.Prompt) ([]graph.Node, error) {
	return r.text.Prompts(g, r.weights, s, prompts), nil
}

func (r random) TextFeatures(g *graph.Graph, ids [][]int) (graph.Node, error) {
	return r.text.Sequences(g, r.weights, ids, r.embed), nil
}

// Patches returns the patches per image. Without an image tower it returns the number of ViT-B/32 and RN50 at 224
// pixels.
func (r random) Patches() int {
	if r.vision.Width == 0 {
		return fullPatches
	}
	return r.vision.Patches()
}

// Tokens returns the tokens per image, or 0 without an image tower.
func (r random) Tokens() int {
	if r.vision.Width == 0 {
		return 0
	}
	return r.vision.Tokens()
}

func (r random) Embed(ids []int) ([]float32, error) { return r.embed(ids) }
func (r random) TakesPromptTokens() bool            { return true }
func (r random) Batch() int                         { return 0 }
func (r random) Digest() string                     { return "" }
func (r random) Verify() error                      { return nil }
func (r random) Report(*bundle.Report)              {}
func (r random) ImageModel() (*onnx.ModelProto, error) {
	return nil, fmt.Errorf("backbone %s has no image model", r.name)
}

// FullSize replaces the backbone of every client of an experiment by a full-size backbone whose weights lie in dir. It
// also replaces images and patches by random unit rows. Labels stay. Evaluation sets are removed.
func FullSize(e *spec.Experiment, words *bundle.Bundle, dir string) error {
	t, err := randomTower("random-vit-b16", clip.TextB, clip.VisionArch{}, dir)
	if err != nil {
		return err
	}
	b := fullSizeOf(t, words)
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
