package pretrain

import (
	"os"
	"path/filepath"
	"testing"

	"promptfed/federation/data/sets"
	"promptfed/models/bundle"
	"promptfed/models/bundle/converted"
	"promptfed/models/tiny"
	"promptfed/runtime/goldentest"
)

// bundled converts an embedded backbone.
func bundled(t *testing.T, name string) *bundle.Bundle {
	files, err := tiny.FS(name)
	goldentest.NoError(t, err)
	dir := t.TempDir()
	goldentest.NoError(t, os.CopyFS(dir, files))
	b, err := converted.Convert(dir, filepath.Join(t.TempDir(), "bundle"), converted.Options{})
	goldentest.NoError(t, err)
	return b
}

// levels are accuracies that the embedded weights must reach, 3 to 6 points below the measured ones: 0.310, 0.371,
// 0.528 with patches of 8 and 0.226, 0.286, 0.411 with patches of 16. Chance is 1/42 on the synthetic objects, 1/7 on
// PACS, 1/10 on the digits.
var levels = map[string]map[string]float64{
	"tiny-rn101":   {"synthetic": 0.38, "pacs": 0.36, "digits": 0.58},
	"tiny-rn50":    {"synthetic": 0.38, "pacs": 0.39, "digits": 0.58},
	"tiny-vit-b16": {"synthetic": 0.27, "pacs": 0.32, "digits": 0.47},
	"tiny-vit-b32": {"synthetic": 0.19, "pacs": 0.24, "digits": 0.36},
}

// The prompt "a photo of a CLASS." classifies images that no backbone was trained on well above chance: newly drawn
// ones and, if they are available, the test images of PACS and the digits.
func TestBundled(t *testing.T) {
	fresh := sets.Defaults()
	fresh.Seed, fresh.Generator.Train, fresh.Generator.Test = 987654321, 1, 3
	for _, name := range tiny.Names() {
		b := bundled(t, name)
		for set, want := range levels[name] {
			cfg := fresh
			if cfg.Set = set; set != "synthetic" {
				if cfg.Root = shared(t, set); cfg.Root == "" {
					continue
				}
			}
			s, err := sets.Open(cfg)
			goldentest.NoError(t, err)
			acc, err := accuracies(t.Context(), b, s, 1)
			goldentest.NoError(t, err)
			right, all := 0.0, 0
			for _, a := range acc {
				right += a.Correct * float64(a.Images)
				all += a.Images
			}
			got := right / float64(all)
			t.Logf("%s on %s: %.3f of %d images, %d classes", name, set, got, all, acc[0].Classes)
			if got < want {
				t.Errorf("%s on %s: zero-shot accuracy %.3f, want %.2f", name, set, got, want)
			}
		}
	}
}

// shared is a data folder beside the checkout, or "".
func shared(t *testing.T, set string) string {
	root := filepath.Join(goldentest.Module(t), "..", "shared", "data", set)
	if _, err := os.Stat(root); err != nil {
		return ""
	}
	return root
}
