package sets

import (
	"image"
	"slices"
	"testing"

	"promptfed/federation/data"
	"promptfed/runtime/goldentest"
)

func TestDrawnSet(t *testing.T) {
	cfg := Config{Set: "synthetic",
		Generator: Generator{Classes: []string{"star", "fish", "stripes"}, Domains: []string{"photo", "neon"},
			Train: 3, Test: 2, Size: 24,
			Difficulty: 0.5}}
	s := mustOpen(t, cfg)
	if s.Name != "synthetic" || len(s.Train) != 18 || len(s.Test) != 12 || len(s.Val) != 0 {
		t.Fatalf("%s: %d and %d", s.Name, len(s.Train), len(s.Test))
	}
	pixels := func(e data.Example) string {
		img, err := e.Image(nil)
		if err != nil {
			t.Fatal(err)
		}
		if img.Bounds() != image.Rect(0, 0, 24, 24) {
			t.Fatal(img.Bounds())
		}
		return string(img.(*image.RGBA).Pix)
	}
	seen := map[string]string{}
	for _, e := range append(slices.Clone(s.Train), s.Test...) {
		p := pixels(e)
		if seen[p] != "" {
			t.Errorf("%s equals %s", e.ID, seen[p])
		}
		seen[p] = e.ID
	}
	// With fewer classes or more images, the other images stay the same; with another seed they differ.
	less := cfg
	less.Generator.Classes, less.Generator.Train, less.Generator.Test = []string{"fish"}, 5, 1
	if got := pixels(mustOpen(t, less).Train[1]); seen[got] != "drawn/train/photo/fish/0001" {
		t.Errorf("changed with the counts: %q", seen[got])
	}
	less.Seed, less.Generator.Train = 1, 1
	if got := pixels(mustOpen(t, less).Train[0]); seen[got] != "" {
		t.Error("the seed does not decide")
	}
	other := mustOpen(t, Config{Set: "synthetic", Seed: 1, Generator: cfg.Generator})
	if data.Digest(s.Train) == data.Digest(other.Train) {
		t.Error("the digest does not follow the seed")
	}
	for _, c := range []struct {
		d     Generator
		words []string
	}{{Generator{Classes: []string{"blob"}}, []string{`"blob"`, "star"}},
		{Generator{Domains: []string{"x"}}, []string{`"x"`, "photo"}},
		{Generator{Train: 3}, []string{"test 0"}},
		{Generator{Size: 3}, []string{"data.generator.size: 3; it must be at least 4"}},
		{Generator{Size: 2049}, []string{"data.generator.size: 2049; it must lie between 0 and 2048"}},
		{Generator{Difficulty: 1.5}, []string{"data.generator.difficulty: 1.5; it must lie between 0 and 1"}},
		{Generator{Classes: []string{"star", "star"}}, []string{"occurs twice"}}} {
		_, err := Open(Config{Set: "synthetic", Generator: c.d})
		goldentest.WantError(t, err, c.words...)
	}
}
