// Package bundletest builds the models of bundles for tests that must not fail there. It imports models/bundle and
// runtime/goldentest.
package bundletest

import (
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/convert"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// ImageModel returns the model of a bundle's image tower.
func ImageModel(t testing.TB, b *bundle.Bundle) *onnx.ModelProto {
	t.Helper()
	m, err := b.ImageModel()
	goldentest.NoError(t, err)
	return m
}

// Sentences returns the features of texts.
func Sentences(t testing.TB, b *bundle.Bundle, g *graph.Graph, texts ...string) graph.Node {
	t.Helper()
	features, err := b.Sentences(g, texts)
	goldentest.NoError(t, err)
	return features
}

// Templates returns the prompts of templates.
func Templates(t testing.TB, b *bundle.Bundle, g *graph.Graph, classes, templates []string) []clip.Prompt {
	t.Helper()
	return convert.Slice(templates, func(template string) clip.Prompt {
		words, own, err := b.SplitTemplate(classes, template)
		goldentest.NoError(t, err)
		p := clip.Prompt{Own: own}
		if words != nil {
			p.Ctx = g.Const(words)
		}
		return p
	})
}

// Prompts returns the features of classes, for each prompt.
func Prompts(t testing.TB, b *bundle.Bundle, g *graph.Graph, classes []string, prompts ...clip.Prompt) []graph.Node {
	t.Helper()
	features, err := b.Prompts(g, classes, prompts)
	goldentest.NoError(t, err)
	return features
}
