package features_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"promptfed/federation/data"
	"promptfed/federation/data/features"
	"promptfed/federation/method"
	"promptfed/models/bundle"
	"promptfed/runtime/goldentest"
	"promptfed/runtime/tensor"
)

// By hand: (3,4) has the norm 5. Zeros and what is no number stay as they are.
func TestL2Normalize(t *testing.T) {
	nan := float32(math.NaN())
	got := features.L2Normalize(tensor.Of([]float32{3, 4, 0, 0, nan, 7, 0, -2}, 2, 2, 2)).Data
	if !slices.Equal(got[:4], []float32{.6, .8, 0, 0}) || got[5] != 7 || got[7] != -1 {
		t.Error(got)
	}
}

// By hand: a list has 64 rows a shard up to 2048 shards, and then whole batches of 8 images in about as many shards.
func TestRowsOfAShard(t *testing.T) {
	for n, want := range map[int]int{1: 64, 2048 * 64: 64, 2048 * 79: 72, 2048 * 80: 80} {
		r := features.Request{What: method.PixelsInput, List: make([]data.Example, n)}
		if got := features.ShardOf(features.Extractor{}, r); got != want {
			t.Errorf("%d images: %d rows a shard, want %d", n, got, want)
		}
	}
}

// bare is an image tower without patches and tokens.
type bare struct{ bundle.Towers }

func (bare) Patches() int { return 0 }
func (bare) Tokens() int  { return 0 }

// A backbone without patches or tokens is named before anything is computed.
func TestFeaturesThatABackboneLacks(t *testing.T) {
	b := &bundle.Bundle{Name: "x", Towers: bare{}}
	for what, says := range map[string]string{
		method.PatchesInput: "the method reads patch features, but backbone x has none",
		method.TokensInput:  "the method reads the last tokens of images, but backbone x has none"} {
		_, err := features.Extractor{Cache: data.Cache{Dir: t.TempDir()}}.Rows(context.Background(),
			features.Request{Bundle: b, What: what})
		goldentest.WantError(t, err, says)
	}
	for bytes, large := range map[int64]bool{5e7: true, 5e7 - 1: false} {
		s := features.Storage{Dir: "d", Free: -1, Bytes: 5e7 + bytes, Missing: []features.MissingRows{
			{Name: "features", Images: 3, Bytes: 5e7}, {Name: "pixels", Images: 2, Bytes: bytes}}}
		if s.Large() != large ||
			s.String() != "features of 3 images 0.05 GB, pixels of 2 images 0.05 GB will need in d" {
			t.Error(s.Large(), s)
		}
	}
}
