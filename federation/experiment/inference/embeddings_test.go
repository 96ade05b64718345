package inference

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"promptfed/federation/data/sets"
	"promptfed/federation/engine/enginetest"
	"promptfed/federation/engine/record"
	"promptfed/federation/experiment"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/ort/orttest"
	"promptfed/runtime/tensor"
)

// TestEmbeddings: the file has the requested images, spread over the classes, and unit class features that moved.
func TestEmbeddings(t *testing.T) {
	c := experiment.Defaults()
	c.Method, c.Backbones, c.Eval.Embeddings = "fedpha", []string{"tiny-vit-b16", "tiny-vit-b32"}, 6
	c.Data.Set = "synthetic"
	c.Data.Generator = sets.Generator{Classes: []string{"circle", "square", "star", "house"},
		Domains: []string{"cartoon", "photo"}, Train: 3, Test: 2, Size: 32}
	c.Partition.Clients, c.Train.Rounds, c.Train.LR, c.Train.Batch = 3, 2, 0.05, 8
	c.Runtime.Cache = t.TempDir()
	b := federated(t, c)
	defer b.Close()
	set := b.Settings()
	set.Dir = t.TempDir()
	enginetest.Run(t, b.Experiment, set)
	goldentest.NoError(t, WriteEmbeddings(t.Context(), b, set.Dir, nil))
	m := orttest.Golden(t, filepath.Join(set.Dir, record.EmbeddingsFile))
	for _, name := range c.Backbones {
		if label := m[name+"/label"]; label == nil || !slices.Equal(label.Ints, []int64{0, 0, 1, 1, 2, 3}) {
			t.Errorf("%s: labels %v", name, label)
		}
		image, start, end := m[name+"/image"], m[name+"/text/start"], m[name+"/text/end"]
		if image.Shape[0] != 6 || start.Shape[0] != 4 || start.Shape[1] != image.Shape[1] ||
			start.Data[0] == end.Data[0] {
			t.Errorf("%s: %v %v %v", name, image, start, end)
		}
		for _, v := range []*tensor.Tensor{image, start, end} {
			for i := range v.Shape[0] {
				if n := v.Row(i).Norm(); math.Abs(n-1) > 2e-3 { // images are kept in half precision
					t.Errorf("%s: a row has length %g", name, n)
				}
			}
		}
	}
}

// TestSpread: of labels 0 0 0 1 2 2 five are drawn: the first of each class, then the second of classes that have one.
func TestSpread(t *testing.T) {
	labels := []int64{0, 0, 0, 1, 2, 2}
	if got := spread(labels, 3, 5); !slices.Equal(got, []int{0, 1, 3, 4, 5}) {
		t.Error(got)
	}
	if got := spread(labels, 3, 100); len(got) != 6 {
		t.Error(got)
	}
}
