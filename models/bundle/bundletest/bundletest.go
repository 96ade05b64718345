// Package bundletest builds the models of bundles for tests that must not fail there. It imports models/bundle.
package bundletest

import (
	"testing"

	"promptfed/models/bundle"
	"promptfed/models/clip"
	"promptfed/runtime/graph"
	"promptfed/runtime/onnx"
)

// ImageModel returns the model of a bundle's image tower.
func ImageModel(t testing.TB, b *bundle.Bundle) *onnx.ModelProto {
	t.Helper()
	m, err := b.ImageModel()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Sentences returns the features of texts.
func Sentences(t testing.TB, b *bundle.Bundle, g *graph.Graph, texts ...string) graph.Node {
	t.Helper()
	features, err := b.Sentences(g, texts)
	if err != nil {
		t.Fatal(err)
	}
	return features
}

// Prompts returns the features of classes, for each prompt.
func Prompts(t testing.TB, b *bundle.Bundle, g *graph.Graph, classes []string, prompts ...clip.Prompt) []graph.Node {
	t.Helper()
	features, err := b.Prompts(g, classes, prompts)
	if err != nil {
		t.Fatal(err)
	}
	return features
}
